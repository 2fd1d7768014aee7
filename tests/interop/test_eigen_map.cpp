// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "violations.hpp"
#include <cellar/attention/attend.hpp>
#include <cellar/cellar.hpp>
#include <cellar/interop/eigen_map.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace test_eigen_map {

using namespace cellar;

namespace {

template <class E>
std::vector<E> counted(int n) {
    std::vector<E> elements;
    for (int i = 0; i < n; ++i) elements.push_back(static_cast<E>(static_cast<float>(i)));
    return elements;
}

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

} // namespace

TEST_CASE("matrices are rows of tokens; a block whose elements lie apart is a violation") {
    Cache<> cache{{.layers = 1, .kv_heads = 1, .head_dim = 2}, {.sequences = 2, .cells = 8, .batch = 4}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 2}).value();
    Matrix all(2, 4);
    all << 1, 2, 91, 92, 3, 4, 93, 94;
    const Eigen::Vector4f values{5, 6, 7, 8};
    CHECK(violation_of([&] { pass.put(0, all.leftCols(2), values); })
          == "put: the elements of the keys lie apart, expected neighbours or a view with strides");
    const Eigen::Map<Eigen::VectorXf, 0, Eigen::InnerStride<2>> every_second{all.data(), 4};
    CHECK(violation_of([&] { pass.put(0, values, every_second); })
          == "put: the elements of the values lie apart, expected neighbours or a view with strides");
    const Matrix keys = all.leftCols(2);
    pass.put(0, keys, values);
    CHECK(pass.keys(0)(1, 0, 1) == 4);

    Matrix out = Matrix::Constant(2, 4, -1);
    CHECK(violation_of([&] { attend(pass, 0, keys, out.leftCols(2)); })
          == "attend: the elements of the results lie apart, expected neighbours or a view with strides");
    CHECK(out == Matrix::Constant(2, 4, -1));
    Matrix whole(2, 2);
    attend(pass, 0, keys.topRows(2), whole);
    CHECK(whole.row(0) == Eigen::RowVector2f{5, 6});

    Eigen::Matrix<std::int32_t, Eigen::Dynamic, Eigen::Dynamic> ids(2, 3); // by columns
    ids << 0, 1, 2, 1, 1, 1;
    CHECK(violation_of([&] { (void)IdSpan<Position>{ids.row(0)}; })
          == "Batch: the elements of a list of ids lie apart, expected neighbours");
    CHECK(IdSpan<Position>{ids.col(1)}[1] == Position{1});
}

TEST_CASE("a matrix by columns has a token in each column; one with a token in each row is a violation") {
    Cache<> cache{{.layers = 1, .kv_heads = 2, .head_dim = 2}, {.sequences = 2, .cells = 8, .batch = 4}};
    auto pass = cache.begin(BatchBuilder{Sequence{0}, Position{0}, 3}).value();
    Eigen::MatrixXf tokens(4, 3); // [heads * dim, tokens]
    tokens << 0, 10, 20, 1, 11, 21, 2, 12, 22, 3, 13, 23;
    const Eigen::MatrixXf transposed = tokens.transpose();
    const std::string matrix =
        " are a matrix in which 3 elements are neighbours, expected 2 (a head) or 4 (a token): by "
        "rows, or a token in each column";
    CHECK(violation_of([&] { pass.put(0, transposed, tokens); }) == "put: the keys" + matrix);
    CHECK(violation_of([&] { pass.put(0, tokens, transposed); }) == "put: the values" + matrix);
    pass.put(0, tokens, Matrix(transposed));
    CHECK(pass.keys(0)(2, 1, 0) == 22);
    CHECK(pass.values(0)(2, 1, 0) == 22);
    pass.put(0, Eigen::MatrixXf(tokens.reshaped(2, 6)), Matrix(transposed).reshaped<Eigen::RowMajor>(6, 2).eval());

    Eigen::MatrixXf out(4, 3), wrong = Eigen::MatrixXf::Constant(3, 4, -1);
    CHECK(violation_of([&] { attend(pass, 0, transposed, out); }) == "attend: the queries" + matrix);
    CHECK(violation_of([&] { attend(pass, 0, tokens, wrong); }) == "attend: the results" + matrix);
    CHECK(wrong == Eigen::MatrixXf::Constant(3, 4, -1));
    attend(pass, 0, tokens, out);
    CHECK(out.col(0) == tokens.col(0)); // the first token sees itself alone
}

TEST_CASE_TEMPLATE("eigen_map shows one head, one token, or one element of all heads", E, float, half, bfloat16) {
    auto elements = counted<E>(2 * 3 * 4 * 2);
    const StridedView<E, 3> view{elements.data(), {2, 3, 4}, {24, 8, 2}}; // gaps between all elements
    const auto value = [&](int i, int h, int d) { return static_cast<float>(view(i, h, d)); };
    const auto head = eigen_map(view, 1, 2);
    REQUIRE(head.rows() == 2);
    REQUIRE(head.cols() == 4);
    const auto token = eigen_map(view, 0, 1);
    REQUIRE(token.rows() == 3);
    REQUIRE(token.cols() == 4);
    const auto of_all = eigen_map(view, 2, 3);
    REQUIRE(of_all.rows() == 2);
    REQUIRE(of_all.cols() == 3);
    for (int i = 0; i < 2; ++i) {
        for (int d = 0; d < 4; ++d) CHECK(static_cast<float>(head(i, d)) == value(i, 2, d));
        for (int h = 0; h < 3; ++h) CHECK(static_cast<float>(of_all(i, h)) == value(i, h, 3));
    }
    for (int h = 0; h < 3; ++h)
        for (int d = 0; d < 4; ++d) CHECK(static_cast<float>(token(h, d)) == value(1, h, d));
    CHECK(static_cast<const void*>(head.data()) == &view(0, 2, 0));
}

TEST_CASE("eigen_map shares memory and keeps constness") {
    std::vector<float> elements(6);
    const StridedView<float, 2> view = contiguous_view(elements.data(), 2, 3);
    eigen_map(view)(1, 2) = 7.0F;
    CHECK(elements[5] == 7.0F);
    const StridedView<const float, 2> constant = view;
    static_assert(!std::is_assignable_v<decltype(eigen_map(constant)(0, 0)), float>);
    CHECK(eigen_map(constant)(1, 2) == 7.0F);
}

TEST_CASE("eigen_map shows the keys, values and mask of a pass") {
    Cache<PermutedV<float>> cache{CacheShape{.layers = 1, .kv_heads = 2, .head_dim = 3}, {.capacity = 8, .batch = 4}};
    const auto rows = counted<float>(4 * 2 * 3);
    const std::vector<Position> positions{Position{0}, Position{1}, Position{2}, Position{3}};
    const std::vector<Sequence> sequences(4);
    auto pass = cache.begin({positions, sequences});
    REQUIRE(pass);
    pass->put(0, rows, rows);
    const Eigen::MatrixXf keys = eigen_map(pass->keys(0), 1, 1);     // [history, dim]
    const Eigen::MatrixXf values = eigen_map(pass->values(0), 1, 1); // [history, dim], columns contiguous
    CHECK(keys == values);
    CHECK(keys(3, 2) == rows[3 * 6 + 3 + 2]);
    const auto mask = eigen_map(pass->mask<bool>());
    CHECK(mask.count() == 10);
    pass->commit();
}

TEST_CASE("eigen_map: an axis or index out of range is a violation") {
    std::vector<float> elements(24);
    const auto view = contiguous_view(elements.data(), 2, 3, 4);
    CHECK(violation_of([&] { eigen_map(view, 3, 0); }) == "eigen_map: axis 3, expected 0 to 2");
    CHECK(violation_of([&] { eigen_map(view, -1, 0); }) == "eigen_map: axis -1, expected 0 to 2");
    CHECK(violation_of([&] { eigen_map(view, 1, 3); }) == "eigen_map: index 3 of axis 1, expected 0 to 2");
    CHECK(violation_of([&] { eigen_map(view, 1, -1); }) == "eigen_map: index -1 of axis 1, expected 0 to 2");
}

} // namespace test_eigen_map
