// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "recurrence.hpp"

#include <Eigen/Core>

#include <cstdint>

namespace folder {

using llama::Matrix;

Convolution::Convolution(const ModelFolder& folder, const std::string& at,
                         const cellar::models::StateDescription& inputs) {
    const int taps = inputs.extents[0] + 1;
    const int channels = inputs.extents[1];
    taps_.resize(taps, channels);
    Eigen::Index channel = 0;
    for (const Matrix& weights : folder.matrices(at + "weight", channels, 1, taps))
        taps_.col(channel++) = weights.transpose();
    if (folder.has(at + "bias")) bias_ = folder.vector(at + "bias", channels);
}

Matrix Convolution::forward(const Matrix& x, float* inputs) const {
    const Eigen::Index kept = taps_.rows() - 1;
    Eigen::Map<Matrix> remembered{inputs, kept, taps_.cols()};
    Matrix all(kept + x.rows(), x.cols());
    all << remembered, x;
    Matrix out(x.rows(), x.cols());
    for (Eigen::Index token = 0; token < x.rows(); ++token)
        out.row(token) = all.middleRows(token, taps_.rows()).cwiseProduct(taps_).colwise().sum();
    if (bias_.size() != 0) out.rowwise() += bias_;
    remembered = all.bottomRows(kept);
    return out;
}

namespace {

/// Gates the inputs of its convolution, and the results.
class ShortConvolution final : public Recurrence {
public:
    ShortConvolution(const ModelFolder& folder, const std::string& at, const cellar::models::LayerDescription& layer)
        : hidden_{folder.integer("hidden_size")},
          input_{folder.matrix(at + "in_proj.weight", 3 * std::int64_t{hidden_}, hidden_)},
          convolution_{folder, at + "conv.", layer.state[0]},
          output_{folder.matrix(at + "out_proj.weight", hidden_, hidden_)} {}

    Matrix forward(const Matrix& x, const Remembered& remembered) const override {
        const Matrix projected = x * input_.transpose();
        const Matrix inputs = projected.leftCols(hidden_).cwiseProduct(projected.rightCols(hidden_));
        const Matrix out = convolution_.forward(inputs, remembered.inputs);
        return out.cwiseProduct(projected.middleCols(hidden_, hidden_)) * output_.transpose();
    }

private:
    int hidden_;
    Matrix input_;
    Convolution convolution_;
    Matrix output_;
};

} // namespace

std::unique_ptr<const Recurrence> short_convolution(const ModelFolder& folder, const std::string& at,
                                                    const cellar::models::LayerDescription& layer) {
    return std::make_unique<ShortConvolution>(folder, at, layer);
}

} // namespace folder
