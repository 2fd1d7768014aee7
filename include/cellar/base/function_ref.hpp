// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace cellar::detail {

/// A function that is called during the call that it is given to, and not kept. Allocates nothing, and comes without
/// the large header of std::function.
template <class Signature>
class FunctionRef;

template <class R, class... Arguments>
class FunctionRef<R(Arguments...)> {
public:
    template <class F>
        requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<R, F&, Arguments...>)
    FunctionRef(F&& f) // NOLINT(bugprone-forwarding-reference-overload): constrained above
        : function_{const_cast<void*>(static_cast<const void*>(std::addressof(f)))},
          call_{[](void* function, Arguments... arguments) -> R {
              return (*static_cast<std::remove_reference_t<F>*>(function))(std::forward<Arguments>(arguments)...);
          }} {}

    R operator()(Arguments... arguments) const { return call_(function_, std::forward<Arguments>(arguments)...); }

private:
    void* function_;
    R (*call_)(void* function, Arguments... arguments);
};

} // namespace cellar::detail
