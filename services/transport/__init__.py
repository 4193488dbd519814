"""How messages get from one service to another: requests, sockets, bytes, and the keys that guard them."""
