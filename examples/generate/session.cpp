// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "session.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace llama {

namespace {

/// The largest difference that rounding explains, relative to the largest logit. `u` is the
/// largest relative error of one rounding.
///
/// Sums are taken in float, in another order with the cache than without it: each of them is off
/// by a few u of float, and a dozen blocks follow one another. A stored key or value is rounded
/// to the cache's elements, and a key once more when it is shifted: what a token attends to is
/// off by about u of the element, in every layer. How a model amplifies that is measured: with
/// the Shakespeare model, over 18,000 positions each, it is at most 17 u in float, 1.2 u in half
/// and 0.9 u in bfloat16, and this allows 260 and 4 (1.6e-5, 0.002 and 0.016 of the largest
/// logit). Keys that turn the wrong way, by a position too far or not at all give 0.24 to 1.1 of
/// the largest logit, a window that is off by one 0.015 to 0.5.
double relative_bound(double u) {
    constexpr double of_float = 0x1p-24;
    return 256 * of_float + 4 * u;
}

void expect(const cellar::Result<void>& result, const std::string& what) {
    if (result) return;
    throw std::runtime_error{"the cache refused to " + what + ": " + std::string{to_string(result.error())}};
}

} // namespace

Session::Session(Llama& model, TextMemory& memory, SessionLimits limits)
    : model_{model}, memory_{memory}, limits_{limits}, reference_{model.config(), limits.context, limits.rollback} {
    limits_.keep = std::min(limits_.keep, limits_.context / 2); // there must be something to remove
}

const Matrix& Session::feed(std::span<const int> tokens) {
    const Matrix* logits = nullptr;
    for (std::size_t done = 0; done < tokens.size();) {
        if (length_ == limits_.context) make_room();
        const int left = static_cast<int>(tokens.size() - done);
        const int count = std::min({left, limits_.batch, limits_.context - length_});
        const int last = count - 1;
        logits = &pass(tokens.subspan(done, static_cast<std::size_t>(count)), {&last, 1});
        keep_for_check(logits->row(0));
        done += static_cast<std::size_t>(count);
    }
    return *logits;
}

const Matrix& Session::try_out(std::span<const int> tokens) {
    if (length_ == limits_.context) make_room();
    wanted_.resize(tokens.size());
    std::iota(wanted_.begin(), wanted_.end(), 0);
    tried_ = pass(tokens, wanted_);
    return tried_;
}

void Session::keep(int count) {
    const int excess = static_cast<int>(tried_.rows()) - count;
    if (excess > 0) {
        expect(memory_.remove(length_ - excess, length_), "take tokens back");
        reference_.take_back(excess);
        length_ -= excess;
    }
    keep_for_check(tried_.row(count - 1));
}

Check Session::check() const {
    Reference reference = reference_;
    std::vector<int> wanted;
    for (const Probe& probe : probes_) wanted.push_back(probe.token);
    const Matrix expected = model_.forward(reference.tokens(), reference, wanted);
    Check result;
    result.positions = static_cast<int>(probes_.size());
    result.scale = expected.cwiseAbs().maxCoeff();
    Eigen::Index row = 0;
    for (const Probe& probe : probes_) {
        const RowVector difference = probe.logits - expected.row(row++);
        result.difference = difference.allFinite()
                                ? std::max<double>(result.difference, difference.cwiseAbs().maxCoeff())
                                : std::numeric_limits<double>::quiet_NaN();
        result.after_shift += probe.shifted ? 1 : 0;
    }
    result.bound = relative_bound(memory_.unit_roundoff()) * result.scale;
    return result;
}

void Session::make_room() {
    const int end = limits_.keep + (limits_.context - limits_.keep + 1) / 2;
    if (model_.config().layers(LayerKind::recurrent) > 0) { // a state cannot lose its middle
        std::vector<int> text = reference_.text();
        text.erase(text.begin() + limits_.keep, text.begin() + end);
        begin_anew(text);
    } else {
        expect(memory_.remove(limits_.keep, end), "remove tokens");
        reference_.remove(limits_.keep, end);
        length_ -= end - limits_.keep;
    }
    ++shifts_;
    probe_next_ = true;
}

void Session::begin_anew(std::span<const int> tokens) {
    expect(memory_.remove(0, length_), "remove all tokens");
    reference_.remove(0, length_);
    length_ = 0;
    for (std::size_t done = 0; done < tokens.size();) {
        const std::size_t count = std::min(tokens.size() - done, static_cast<std::size_t>(limits_.batch));
        pass(tokens.subspan(done, count), {});
        done += count;
    }
}

const Matrix& Session::pass(std::span<const int> tokens, std::span<const int> wanted) {
    const int count = static_cast<int>(tokens.size());
    expect(memory_.begin(length_, count), "take " + std::to_string(count) + " tokens");
    const Matrix& logits = model_.forward(tokens, memory_, wanted);
    memory_.commit();
    reference_.append(tokens);
    length_ += count;
    return logits;
}

void Session::keep_for_check(const Eigen::Ref<const RowVector>& logits) {
    const int token = static_cast<int>(reference_.tokens().size()) - 1;
    if (!probe_next_ && token - last_probe_ < limits_.keep_every) return;
    probes_.push_back({token, shifts_ > 0, logits});
    last_probe_ = token;
    probe_next_ = false;
}

} // namespace llama
