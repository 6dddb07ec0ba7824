//! Plots as SVG files: bars of contestants, and curves over a swept quantity.

use std::path::Path;

use plotters::prelude::*;

use crate::BenchError;

const WIDTH: u32 = 1_100;
const HEIGHT: u32 = 480;
const COLOURS: [RGBColor; 8] = [
    RGBColor(38, 84, 124),
    RGBColor(214, 93, 14),
    RGBColor(84, 140, 70),
    RGBColor(140, 70, 140),
    RGBColor(190, 160, 40),
    RGBColor(70, 150, 160),
    RGBColor(170, 50, 60),
    RGBColor(110, 110, 110),
];

/// Groups of bars: a group per contestant, a bar in it per shape of load.
#[derive(Clone, Debug)]
pub struct BarChart {
    title: String,
    unit: String,
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
            contestants: Vec::new(),
            shapes: Vec::new(),
            bars: Vec::new(),
        }
    }

    /// Adds a bar; contestants and shapes stand in the order in which they first came.
    pub fn bar(&mut self, contestant: &str, shape: &str, value: f64) {
        let contestant = place(&mut self.contestants, contestant);
        let shape = place(&mut self.shapes, shape);
        self.bars.push((contestant, shape, value));
    }

    /// Draws it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), BenchError> {
        self.draw(path).map_err(|error| plot_error(path, error))
    }

    fn draw(&self, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let root = SVGBackend::new(path, (WIDTH, HEIGHT)).into_drawing_area();
        root.fill(&WHITE)?;
        let top = self
            .bars
            .iter()
            .map(|(_, _, value)| *value)
            .fold(0.0, f64::max)
            .max(f64::MIN_POSITIVE);
        let mut chart = ChartBuilder::on(&root)
            .caption(&self.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..self.contestants.len() as f64, 0.0..top * 1.08)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(self.contestants.len() * 2 + 1)
            .x_label_formatter(&|x| self.contestant_at(*x))
            .y_desc(&self.unit)
            .draw()?;
        let bar_width = 0.84 / self.shapes.len().max(1) as f64;
        for (shape, name) in self.shapes.iter().enumerate() {
            let colour = COLOURS[shape % COLOURS.len()];
            let bars = self
                .bars
                .iter()
                .filter(|(_, of, _)| *of == shape)
                .map(|(contestant, _, value)| {
                    let left = *contestant as f64 + 0.08 + shape as f64 * bar_width;
                    Rectangle::new([(left, 0.0), (left + bar_width * 0.94, *value)], colour.filled())
                });
            chart
                .draw_series(bars)?
                .label(name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .draw()?;
        root.present()?;
        Ok(())
    }

    /// The name that stands under the middle of a group.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "x is within the chart"
    )]
    fn contestant_at(&self, x: f64) -> String {
        let is_middle = (x.fract() - 0.5).abs() < 0.01;
        let name = is_middle.then(|| self.contestants.get(x as usize)).flatten();
        name.cloned().unwrap_or_default()
    }
}

/// The place of `name` in `names`, added at the end if new.
fn place(names: &mut Vec<String>, name: &str) -> usize {
    names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

fn plot_error(path: &Path, error: Box<dyn std::error::Error>) -> BenchError {
    BenchError::File {
        path: path.to_owned(),
        source: std::io::Error::other(error.to_string()),
    }
}
