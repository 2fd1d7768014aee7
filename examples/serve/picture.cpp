// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "picture.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <sstream>
#include <string>

namespace serve {

namespace {

constexpr double width = 960;
constexpr double left = 78; ///< of the panels
constexpr double right = 936;
constexpr double top = 66; ///< of the first panel
constexpr double panel = 200;
constexpr double pitch = 270;   ///< from one panel to the next
constexpr double columns = 429; ///< of a panel: two pixels each

struct Area {
    const char* name;
    const char* colour;
};
constexpr Area areas[] = {{"running requests", "#3b6ea8"}, {"the tree alone", "#e8a33d"}, {"free", "#eceff1"}};

/// A round number of which about `wanted` fill a length.
int tick_distance(int length, int wanted) {
    const double rough = std::max(1.0, static_cast<double>(length) / wanted);
    const double power = std::pow(10, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 5.0})
        if (factor * power >= rough) return static_cast<int>(factor * power);
    return static_cast<int>(10 * power);
}

/// The mean of live cells, and of live and kept ones, in each column of a panel.
struct Heights {
    std::vector<double> live;
    std::vector<double> kept;

    Heights(const std::vector<Sample>& samples, int steps) {
        std::size_t next = 0;
        double last_live = 0;
        double last_kept = 0;
        for (int column = 0; column < static_cast<int>(columns); ++column) {
            const double end = (column + 1) * steps / columns;
            double live_sum = 0;
            double kept_sum = 0;
            int count = 0;
            for (; next < samples.size() && samples[next].step < end; ++next, ++count) {
                last_live = samples[next].use.live;
                last_kept = last_live + samples[next].use.kept;
                live_sum += last_live;
                kept_sum += last_kept;
            }
            live.push_back(count == 0 ? last_live : live_sum / count);
            kept.push_back(count == 0 ? last_kept : kept_sum / count);
        }
    }
};

class Drawing {
public:
    Drawing(int steps, int cells) : steps_{steps}, cells_{cells} {}

    std::string legend() {
        std::ostringstream out;
        double x = left;
        for (const Area& area : areas) {
            out << "<rect x='" << x << "' y='18' width='14' height='14' fill='" << area.colour
                << "' stroke='#90a4ae' stroke-width='0.5'/>" << text(x + 20, 30, "start", area.name);
            x += 48 + 7.5 * static_cast<double>(std::string{area.name}.size());
        }
        return out.str();
    }

    std::string panel_of(const NamedOutcome& run, double y) const {
        std::ostringstream out;
        out << text(left, y - 10, "start", run.name + ": " + std::to_string(run.outcome.steps) + " steps", "600");
        out << "<rect x='" << left << "' y='" << y << "' width='" << x_of(run.outcome.steps) - left << "' height='"
            << panel << "' fill='" << areas[2].colour << "'/>\n";
        const Heights heights{run.outcome.samples, steps_};
        out << area(heights.kept, run.outcome.steps, y, areas[1].colour)
            << area(heights.live, run.outcome.steps, y, areas[0].colour) << axes(y);
        return out.str();
    }

    static std::string text(double x, double y, const char* anchor, const std::string& content,
                            const char* weight = "400") {
        std::ostringstream out;
        out << "<text x='" << x << "' y='" << y << "' text-anchor='" << anchor << "' font-weight='" << weight << "'>"
            << content << "</text>\n";
        return out.str();
    }

private:
    double x_of(double step) const { return left + (right - left) * step / steps_; }
    double height_of(double cells) const { return panel * cells / cells_; }

    std::string area(const std::vector<double>& heights, int steps, double y, const char* colour) const {
        std::ostringstream out;
        out << "<path fill='" << colour << "' d='M" << left << ' ' << y + panel;
        const double column = (right - left) / columns;
        double x = left;
        const double end = x_of(steps);
        for (const double height : heights) {
            if (x >= end) break;
            out << 'V' << std::round(10 * (y + panel - height_of(height))) / 10;
            x = std::min(x + column, end);
            out << 'H' << std::round(10 * x) / 10;
        }
        out << 'V' << y + panel << "Z'/>\n";
        return out.str();
    }

    std::string axes(double y) const {
        std::ostringstream out;
        out << "<path fill='none' stroke='#455a64' d='M" << left << ' ' << y << 'V' << y + panel << 'H' << right
            << "'/>\n";
        const int cells = tick_distance(cells_, 4);
        for (int at = 0; at <= cells_; at += cells) {
            const double place = y + panel - height_of(at);
            out << "<path stroke='#455a64' d='M" << left - 5 << ' ' << place << 'H' << left << "'/>"
                << text(left - 9, place + 4, "end", std::to_string(at));
        }
        const int steps = tick_distance(steps_, 8);
        for (int at = 0; at <= steps_; at += steps) {
            out << "<path stroke='#455a64' d='M" << x_of(at) << ' ' << y + panel << "v5'/>"
                << text(x_of(at), y + panel + 19, "middle", std::to_string(at));
        }
        out << text((left + right) / 2, y + panel + 36, "middle", "step (one forward pass)");
        out << "<text transform='translate(22 " << y + panel / 2
            << ") rotate(-90)' text-anchor='middle'>cells</text>\n";
        return out.str();
    }

    int steps_;
    int cells_;
};

} // namespace

void draw(std::ostream& stream, const std::vector<NamedOutcome>& runs) {
    int steps = 1;
    int cells = 1;
    for (const NamedOutcome& run : runs) {
        steps = std::max(steps, run.outcome.steps);
        for (const Sample& sample : run.outcome.samples) cells = std::max(cells, sample.use.cells);
    }
    Drawing drawing{steps, cells};
    std::ostringstream out; // the caller's stream keeps its own format
    const double height = top + pitch * static_cast<double>(runs.size()) - 8;
    out << "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 " << width << ' ' << height << "' width='" << width
        << "' height='" << height << "' font-family='Helvetica, Arial, sans-serif' font-size='13' fill='#263238'>\n"
        << "<title>Cells of the pool over time</title>\n"
        << "<rect width='" << width << "' height='" << height << "' fill='#ffffff'/>\n"
        << drawing.legend();
    double y = top + 10;
    for (const NamedOutcome& run : runs) {
        out << drawing.panel_of(run, y);
        y += pitch;
    }
    out << "</svg>\n";
    stream << out.str();
}

} // namespace serve
