"""Services as processes of this machine: started, told apart, watched and ended."""
