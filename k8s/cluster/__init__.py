"""The API server of a cluster: connections, requests, answers, rights, names."""
