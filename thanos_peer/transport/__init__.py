"""ZeroMQ: sockets to the neighbors, keys, authentication and limits on connections. The only room with zmq."""
