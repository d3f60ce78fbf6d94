// How people and engines write an identity down.
#pragma once

#include <string_view>

#include "proto/block_key.h"

namespace larder {

// `text` is canonical text, or a JSON object of texts, whole numbers and truth values, or lines (or
// comma-separated entries) of name=value whose values are taken as they stand. The last two in any order; a
// name given twice is refused. Identity says which names and values there are.
Result<Identity> IdentityFromText(std::string_view text);

}  // namespace larder
