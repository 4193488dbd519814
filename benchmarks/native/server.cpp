// A parameter server for one table and one optimizer, in C++ on libzmq: the least that serving rows costs.
//
//   server ENDPOINT DIM
//
// A request is a Request, the ids as int64 and, for a push, their gradients as float32; a pull is answered by
// the rows, a push by one byte.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "flat_table.h"
#include "zmq.h"

namespace {

enum Kind : uint32_t { kPull = 0, kPush = 1 };

struct Request {
  uint32_t kind;
  uint32_t count;
};

constexpr float kRate = 0.01f, kEpsilon = 1e-7f;
constexpr size_t kFrames = 4;  // who asks, Request, ids, gradients

void check(bool is_good, const char* what) {
  if (is_good) return;
  fprintf(stderr, "%s: %s\n", what, zmq_strerror(zmq_errno()));
  exit(1);
}

// Receives the frames of one message and returns how many there were.
size_t receive(void* socket, zmq_msg_t (&frames)[kFrames]) {
  for (size_t count = 0; count < kFrames;) {
    check(zmq_msg_init(&frames[count]) == 0, "init");
    check(zmq_msg_recv(&frames[count], socket, 0) >= 0, "receive");
    if (!zmq_msg_more(&frames[count++])) return count;
  }
  check(false, "too many frames");
  return 0;
}

void answer(FlatTable& table, size_t dim, zmq_msg_t (&frames)[kFrames], zmq_msg_t* reply) {
  Request request;
  memcpy(&request, zmq_msg_data(&frames[1]), sizeof request);
  const int64_t* ids = static_cast<const int64_t*>(zmq_msg_data(&frames[2]));
  if (request.kind == kPull) {
    check(zmq_msg_init_size(reply, request.count * dim * sizeof(float)) == 0, "reply");
    table.gather(ids, request.count, static_cast<float*>(zmq_msg_data(reply)));
  } else {
    const float* gradients = static_cast<const float*>(zmq_msg_data(&frames[3]));
    table.adagrad(ids, request.count, gradients, kRate, kEpsilon);
    check(zmq_msg_init_size(reply, 1) == 0, "reply");
  }
}

}  // namespace

int main(int, char** arguments) {
  const size_t dim = strtoul(arguments[2], nullptr, 10);
  FlatTable table(dim);
  void* socket = zmq_socket(zmq_ctx_new(), ZMQ_ROUTER);
  check(zmq_bind(socket, arguments[1]) == 0, "bind");
  for (;;) {
    zmq_msg_t frames[kFrames], reply;
    const size_t count = receive(socket, frames);
    answer(table, dim, frames, &reply);
    check(zmq_msg_send(&frames[0], socket, ZMQ_SNDMORE) >= 0, "send");
    check(zmq_msg_send(&reply, socket, 0) >= 0, "send");
    for (size_t i = 1; i < count; i++) zmq_msg_close(&frames[i]);
  }
}
