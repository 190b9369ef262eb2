"""Between services: servers, their limits and their TLS; channels with the cluster secret."""
