// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

// How the product of a query and a key becomes a score. Included for single numbers by score.hpp, and for the
// vectors of each set of instructions, because a function for these must be compiled for them. Without the macros,
// which it undefines at its end, the file is empty.
#ifdef CELLAR_SCORE_FUNCTION

namespace cellar::detail::CELLAR_SCORE_NAMESPACE {

/// `numbers`: how to compute with numbers of this kind, and how far the keys' tokens are from the query's.
template <class Numbers, class Rule, class OfHead>
CELLAR_SCORE_FUNCTION typename Numbers::Number score_of(const Numbers& numbers, typename Numbers::Number product,
                                                        const Rule& rule, const OfHead& head) {
    typename Numbers::Number x = product * numbers.all(rule.scale);
    if (rule.soft_cap != 0) x = numbers.all(rule.soft_cap) * numbers.tanh(numbers.quotient(x, rule.soft_cap));
    if (rule.slopes != nullptr) x -= numbers.distance() * numbers.all(head.slope);
    return x;
}

} // namespace cellar::detail::CELLAR_SCORE_NAMESPACE

#undef CELLAR_SCORE_NAMESPACE
#undef CELLAR_SCORE_FUNCTION

#endif
