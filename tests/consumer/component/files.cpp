// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cellar/files/file_reader.hpp>
#include <cellar/files/file_writer.hpp>

#include <cstddef>
#include <vector>

// Four bytes are written and read again.
int main() {
    auto writer = cellar::FileWriter::create("four.safetensors", {{{"t", cellar::Dtype::u8, {4}}}, {}});
    if (!writer || !writer->append(std::vector<std::byte>(4)) || !writer->finish()) return 1;
    auto reader = cellar::FileReader::open("four.safetensors");
    return reader && reader->verify() && reader->find("t")->bytes == 4 ? 0 : 1;
}
