// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <csignal>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

/// A command that runs beside the test. What it has written to the error stream is lost.
class Child {
public:
    explicit Child(const std::string& command) {
        std::array<int, 2> to{};
        std::array<int, 2> from{};
        REQUIRE(::pipe(to.data()) == 0);
        REQUIRE(::pipe(from.data()) == 0);
        pid_ = ::fork();
        REQUIRE(pid_ >= 0);
        if (pid_ == 0) {
            ::dup2(to[0], STDIN_FILENO);
            ::dup2(from[1], STDOUT_FILENO);
            for (const int end : {to[0], to[1], from[0], from[1]}) ::close(end);
            ::execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
            ::_exit(127);
        }
        ::close(to[0]);
        ::close(from[1]);
        in_ = to[1];
        out_ = from[0];
    }
    ~Child() {
        signal(SIGKILL);
        finish();
        ::close(out_);
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    void write(const std::string& text) { REQUIRE(::write(in_, text.data(), text.size()) == std::ssize(text)); }

    /// Reads until the output has at least `bytes` bytes or ends with the program.
    const std::string& read(std::size_t bytes) {
        std::array<char, 4096> piece{};
        ssize_t count = 1;
        while (output_.size() < bytes && count > 0) {
            count = ::read(out_, piece.data(), piece.size());
            if (count > 0) output_.append(piece.data(), static_cast<std::size_t>(count));
        }
        return output_;
    }

    void signal(int number) const {
        if (pid_ > 0) ::kill(pid_, number);
    }

    /// Ends the input, and returns the status of the program, as `waitpid` does.
    int finish() {
        if (pid_ <= 0) return status_;
        ::close(in_);
        ::waitpid(pid_, &status_, 0);
        pid_ = 0;
        return status_;
    }

private:
    pid_t pid_ = 0;
    int in_ = -1;
    int out_ = -1;
    int status_ = 0;
    std::string output_;
};
