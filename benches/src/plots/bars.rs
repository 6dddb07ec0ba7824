//! Groups of bars.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::{Marked, short};
use super::{Axis, Drawn, FAINT, FONT, INK, WIDTH, colour, paper, place};

/// Groups of bars: a group per contestant, a bar in it per shape of load.
#[derive(Clone, Debug)]
pub struct BarChart {
    title: String,
    unit: String,
    is_logarithmic: bool,
    contestants: Vec<String>,
    shapes: Vec<String>,
    bars: Vec<(usize, usize, f64)>,
}

impl BarChart {
    /// An empty chart; `unit` stands beside the axis.
    #[must_use]
    pub fn new(title: impl Into<String>, unit: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            unit: unit.into(),
            is_logarithmic: false,
            contestants: Vec::new(),
            shapes: Vec::new(),
            bars: Vec::new(),
        }
    }

    /// The same on a logarithmic scale, for values that differ by powers of ten.
    #[must_use]
    pub fn logarithmic(mut self) -> Self {
        self.is_logarithmic = true;
        self
    }

    /// Adds a bar; contestants and shapes stand in the order in which they first came.
    pub fn bar(&mut self, contestant: &str, shape: &str, value: f64) {
        let contestant = place(&mut self.contestants, contestant);
        let shape = place(&mut self.shapes, shape);
        self.bars.push((contestant, shape, value));
    }

    pub(super) fn draw(&self, svg: &mut String) -> Drawn<()> {
        let area = paper(svg, &self.title, &self.shapes)?;
        let axis = if self.is_logarithmic {
            Axis::Log("")
        } else {
            Axis::Linear("")
        };
        let bars: Vec<_> = self
            .bars
            .iter()
            .filter_map(|(contestant, shape, value)| Some((*contestant, *shape, axis.place(*value)?, *value)))
            .collect();
        let (low, high) = axis.range(bars.iter().map(|bar| bar.2));
        // Room for the figures above the bars.
        let high = high + (high - low) * 0.04;
        let groups = self.contestants.len() as f64;
        let middles: Vec<f64> = (0..self.contestants.len())
            .map(|group| group as f64 + 0.5)
            .collect();
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .x_label_area_size(38)
            .y_label_area_size(64)
            .build_cartesian_2d(
                Marked {
                    range: (0.0, groups),
                    marks: middles,
                },
                axis.marked((low, high)),
            )?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(INK.mix(0.5))
            .x_labels(self.contestants.len())
            .y_labels(16)
            .x_label_formatter(&|_| String::new())
            .y_label_formatter(&|y| axis.text(*y))
            .label_style((FONT, 13).into_font().color(&INK))
            .y_desc(&self.unit)
            .draw()?;
        let width = 0.86 / self.shapes.len().max(1) as f64;
        // A figure is about as wide as five of its letters.
        let slots = self.contestants.len() * self.shapes.len();
        let has_room = slots <= WIDTH as usize / 28;
        for (contestant, shape, top, value) in bars {
            let left = contestant as f64 + 0.07 + shape as f64 * width;
            chart.draw_series([Rectangle::new(
                [(left, low), (left + width * 0.92, top)],
                colour(shape).filled(),
            )])?;
            if has_room {
                let style = (FONT, 10).into_font().color(&INK.mix(0.8));
                let above = style.pos(Pos::new(HPos::Center, VPos::Bottom));
                chart.draw_series([Text::new(short(value), (left + width * 0.46, top), above)])?;
            }
        }
        // Names in two lines, so that neighbours do not meet.
        for (group, name) in self.contestants.iter().enumerate() {
            for (line, text) in (0..).zip(two_lines(name)) {
                let style = (FONT, 12).into_font().color(&INK);
                let centred = style.pos(Pos::new(HPos::Center, VPos::Top));
                let below = EmptyElement::at((group as f64 + 0.5, low))
                    + Text::new(text, (0, 8 + 14 * line), centred);
                chart.draw_series([below])?;
            }
        }
        area.present()?;
        Ok(())
    }
}

/// A name in at most two lines, of about the same length.
fn two_lines(name: &str) -> Vec<String> {
    let middle = name.len() / 2;
    let spaces = name.char_indices().filter(|(_, letter)| *letter == ' ');
    match spaces.min_by_key(|(at, _)| at.abs_diff(middle)) {
        Some((at, _)) if name.len() > 9 => vec![name[..at].to_owned(), name[at + 1..].to_owned()],
        _ => vec![name.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::two_lines;

    #[test]
    fn names_are_broken_near_their_middle() {
        assert_eq!(two_lines("fdatasync"), ["fdatasync"]);
        assert_eq!(two_lines("redb, one row, fsync"), ["redb, one", "row, fsync"]);
        assert_eq!(two_lines("a-name-without-spaces"), ["a-name-without-spaces"]);
    }
}
