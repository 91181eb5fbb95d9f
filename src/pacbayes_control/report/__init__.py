"""Something to look at: pictures of environments and of results."""
