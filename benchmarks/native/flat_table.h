// An embedding table for one machine and one optimizer: what a parameter server's C++ would look like without
// anything that edlz needs besides (any dimension, any optimizer, snapshots, checks).
//
// Open addressing with linear probing (16-byte slots, at most 0.7 full); rows with their Adagrad sums in one
// reserved block of 2 MB pages that never moves.  Ids are taken in blocks: while one is worked on, the slots
// of the next one are fetched.
#pragma once

#include <sys/mman.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

class FlatTable {
 public:
  explicit FlatTable(size_t dim) : dim_(dim), stride_(2 * dim), slots_(1 << 10) {
    void* block = mmap(nullptr, kReservedBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) abort();
    madvise(block, kReservedBytes, MADV_HUGEPAGE);
    rows_ = static_cast<float*>(block);
  }
  FlatTable(const FlatTable&) = delete;
  ~FlatTable() { munmap(rows_, kReservedBytes); }

  // Copies the rows of `ids` to `out`; the row of an unknown id is what it would begin with.
  void gather(const int64_t* ids, size_t count, float* out) {
    in_blocks(ids, count, [&](size_t i, int64_t id, const Slot* slot) {
      if (slot->row == kFree) begin(id, out + i * dim_);
      else memcpy(out + i * dim_, row(slot->row), dim_ * sizeof(float));
    });
  }

  // Takes one Adagrad step on the rows of `ids` (none twice); unknown ones are made first.
  void adagrad(const int64_t* ids, size_t count, const float* gradients, float rate, float epsilon) {
    while ((size_ + count) * 10 > slots_.size() * 7) grow();
    in_blocks(ids, count, [&](size_t i, int64_t id, Slot* slot) {
      if (slot->row == kFree) insert(id, slot);
      float* __restrict values = row(slot->row);
      float* __restrict sums = values + dim_;
      const float* __restrict gradient = gradients + i * dim_;
      for (size_t k = 0; k < dim_; k++) {
        sums[k] += gradient[k] * gradient[k];
        values[k] -= rate * gradient[k] / (std::sqrt(sums[k]) + epsilon);
      }
    });
  }

 private:
  static constexpr size_t kReservedBytes = size_t{1} << 36;
  static constexpr size_t kBlock = 32;
  static constexpr uint32_t kFree = ~uint32_t{0};
  static constexpr float kInitialSum = 0.1f;

  struct Slot {
    int64_t id = 0;
    uint32_t row = kFree;
  };

  static uint64_t hash(uint64_t id) {
    id *= 0x9E3779B97F4A7C15ull;
    return id ^ (id >> 32);
  }

  static uint64_t mixed(uint64_t x) {
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ull;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ull;
    return x ^ (x >> 32);
  }

  float* row(uint32_t number) { return rows_ + size_t{number} * stride_; }

  Slot* find(int64_t id, uint64_t place) {
    while (slots_[place].row != kFree && slots_[place].id != id) place = (place + 1) & (slots_.size() - 1);
    return &slots_[place];
  }

  void begin(int64_t id, float* values) {
    uint64_t seed = mixed(id);
    for (size_t k = 0; k < dim_; k++)
      values[k] = (float(mixed(seed + k) >> 40) * (1.0f / (1 << 23)) - 1.0f) * 0.05f;
  }

  void insert(int64_t id, Slot* slot) {
    *slot = {id, uint32_t(size_++)};
    begin(id, row(slot->row));
    for (size_t k = dim_; k < stride_; k++) row(slot->row)[k] = kInitialSum;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.row != kFree) *find(slot.id, hash(slot.id) & (slots_.size() - 1)) = slot;
  }

  // Calls work(i, ids[i], its slot) for each id in turn.  A new id's slot is free until `work` has used it,
  // so a block's slots are found again if one before them was inserted.
  template <typename Work>
  void in_blocks(const int64_t* ids, size_t count, Work work) {
    const uint64_t mask = slots_.size() - 1;
    auto fetch_slots = [&](size_t from) {
      for (size_t i = from; i < from + kBlock && i < count; i++)
        __builtin_prefetch(&slots_[hash(ids[i]) & mask]);
    };
    fetch_slots(0);
    for (size_t from = 0; from < count; from += kBlock) {
      fetch_slots(from + kBlock);
      Slot* found[kBlock];
      const size_t until = from + kBlock < count ? from + kBlock : count;
      for (size_t i = from; i < until; i++) {
        Slot* slot = found[i - from] = find(ids[i], hash(ids[i]) & mask);
        if (slot->row == kFree) continue;
        const char* first = reinterpret_cast<const char*>(row(slot->row));
        for (size_t byte = 0; byte < stride_ * sizeof(float); byte += 64) __builtin_prefetch(first + byte, 1);
      }
      for (size_t i = from; i < until; i++) {
        Slot* slot = found[i - from];
        if (slot->row == kFree || slot->id != ids[i]) slot = find(ids[i], hash(ids[i]) & mask);
        work(i, ids[i], slot);
      }
    }
  }

  const size_t dim_, stride_;
  std::vector<Slot> slots_;
  size_t size_ = 0;
  float* rows_;
};
