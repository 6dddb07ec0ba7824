//! Curves.

use plotters::prelude::*;

use super::{Axis, Drawn, FAINT, FONT, INK, colour, paper};

/// Curves over what was swept: each has a name and its points.
#[derive(Clone, Debug)]
pub struct LineChart {
    title: String,
    x: Axis,
    y: Axis,
    lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl LineChart {
    /// An empty chart.
    #[must_use]
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Self {
            title: title.into(),
            x,
            y,
            lines: Vec::new(),
        }
    }

    /// Adds a curve. Points that have no place on an axis, such as zero on a logarithmic one, are
    /// left out.
    pub fn line(&mut self, name: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        let points: Vec<_> = points
            .into_iter()
            .filter_map(|(x, y)| Some((self.x.place(x)?, self.y.place(y)?)))
            .collect();
        if !points.is_empty() {
            self.lines.push((name.to_owned(), points));
        }
    }

    /// Whether there is nothing to draw.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub(super) fn draw(&self, svg: &mut String) -> Drawn<()> {
        let names: Vec<_> = self.lines.iter().map(|(name, _)| name.clone()).collect();
        let area = paper(svg, &self.title, &names)?;
        let points = self.lines.iter().flat_map(|(_, points)| points);
        let (left, right) = self.x.range(points.clone().map(|point| point.0));
        let (low, high) = self.y.range(points.map(|point| point.1));
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .x_label_area_size(46)
            .y_label_area_size(64)
            .build_cartesian_2d(self.x.marked((left, right)), self.y.marked((low, high)))?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(INK.mix(0.5))
            .x_labels(16)
            .y_labels(16)
            .x_label_formatter(&|x| self.x.text(*x))
            .y_label_formatter(&|y| self.y.text(*y))
            .label_style((FONT, 13).into_font().color(&INK))
            .x_desc(self.x.name())
            .y_desc(self.y.name())
            .draw()?;
        for (line, (_, points)) in self.lines.iter().enumerate() {
            let style = colour(line).stroke_width(2);
            chart.draw_series([PathElement::new(points.clone(), style)])?;
            let dots = points
                .iter()
                .map(|point| Circle::new(*point, 3, colour(line).filled()));
            chart.draw_series(dots)?;
        }
        area.present()?;
        Ok(())
    }
}
