// SPDX-License-Identifier: MIT
// NumPy's file formats: .npy (one array) and .npz (a zip archive of .npy members).
// bfloat16, which NumPy lacks, is stored as '<V2', as ml_dtypes and MLX do. Files of either byte order
// and of column-major order are read. Everything is checked before it is believed.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/array.h"
#include "io/stream.h"

namespace cermet {

namespace io {

// Evaluates the array. Raises [save] io.
void write_npy(Writer& out, const array& a);
// Reads exactly one array; raises [load] value when the bytes are no .npy file.
array read_npy(Reader& in);

using NamedArrays = std::vector<std::pair<std::string, array>>;

void write_npz(Writer& out, const NamedArrays& arrays, bool compressed);
// Members in the order of the archive, without the suffix .npy.
NamedArrays read_npz(SeekableReader& in);

}  // namespace io

// A missing suffix .npy is added. Atomic: the file is complete or as before.
void save(const std::string& file, const array& a);
void savez(const std::string& file, const io::NamedArrays& arrays,
           bool compressed = false);  // .npz
array load(const std::string& file);
io::NamedArrays load_npz(const std::string& file);

}  // namespace cermet
