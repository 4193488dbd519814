// The part of libzmq's interface that server.cpp uses.  pyzmq brings the library but not its header, and the
// two sides are to use the same library.
#pragma once

#include <cstddef>

extern "C" {

struct alignas(void*) zmq_msg_t {
  unsigned char opaque[64];
};

constexpr int ZMQ_ROUTER = 6;
constexpr int ZMQ_SNDMORE = 2;

void* zmq_ctx_new();
void* zmq_socket(void* context, int kind);
int zmq_bind(void* socket, const char* endpoint);
int zmq_msg_init(zmq_msg_t* message);
int zmq_msg_init_size(zmq_msg_t* message, size_t bytes);
int zmq_msg_recv(zmq_msg_t* message, void* socket, int flags);
int zmq_msg_send(zmq_msg_t* message, void* socket, int flags);
int zmq_msg_close(zmq_msg_t* message);
int zmq_msg_more(const zmq_msg_t* message);
void* zmq_msg_data(zmq_msg_t* message);
int zmq_errno();
const char* zmq_strerror(int code);
}
