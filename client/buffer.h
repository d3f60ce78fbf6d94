// The caller's handle of transfer memory.
#pragma once

#include <memory>

#include "client/client.h"
#include "client/transports.h"

namespace larder::client {

// The region leaves the transports when both this and every operation on it are gone.
class RegionHold {
 public:
  RegionHold(std::shared_ptr<Transports> transports, std::shared_ptr<RegionMemory> memory)
      : transports_(std::move(transports)), memory_(std::move(memory)) {}
  ~RegionHold() { transports_->Remove(memory_); }
  RegionHold(const RegionHold&) = delete;
  RegionHold& operator=(const RegionHold&) = delete;
  const RegionMemory& memory() const { return *memory_; }

 private:
  std::shared_ptr<Transports> transports_;
  std::shared_ptr<RegionMemory> memory_;
};

class RegionBuffer : public Buffer {
 public:
  explicit RegionBuffer(std::shared_ptr<RegionHold> hold) : hold_(std::move(hold)) {}
  std::byte* data() const override { return hold_->memory().region().base; }
  size_t bytes() const override { return hold_->memory().bytes(); }

 private:
  std::shared_ptr<RegionHold> hold_;
};

}  // namespace larder::client
