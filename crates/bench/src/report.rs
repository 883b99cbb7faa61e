//! Medians, and a table of them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::load::Outcome;
use crate::middle::Kind;
use crate::scenario::Scenario;

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// CPU of the middle process, µs an operation.
    cpu_us: f64,
    operations_per_second: f64,
    p50_us: f64,
    p99_us: f64,
}

impl Sample {
    pub(crate) fn new(outcome: &Outcome, cpu: Duration) -> Self {
        let mut latencies = outcome.latencies.clone();
        latencies.sort_unstable();
        let at = |permille: usize| {
            let index = latencies.len() * permille / 1000;
            latencies.get(index.min(latencies.len().saturating_sub(1))).map_or(0.0, |d| micros(*d))
        };
        #[allow(clippy::cast_precision_loss)] // counts of one run are far below 2^52
        let operations = outcome.operations.max(1) as f64;
        Self {
            cpu_us: micros(cpu) / operations,
            operations_per_second: operations / outcome.elapsed.as_secs_f64(),
            p50_us: at(500),
            p99_us: at(990),
        }
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// All measurements.
#[derive(Debug, Default)]
pub(crate) struct Report {
    samples: BTreeMap<(Scenario, usize, Kind), Vec<Sample>>,
}

impl Report {
    pub(crate) fn add(&mut self, scenario: Scenario, connections: usize, kind: Kind, sample: Sample) {
        self.samples.entry((scenario, connections, kind)).or_default().push(sample);
    }

    fn median(
        &self,
        scenario: Scenario,
        connections: usize,
        kind: Kind,
        of: impl Fn(&Sample) -> f64,
    ) -> Option<f64> {
        let mut values: Vec<f64> = self.samples.get(&(scenario, connections, kind))?.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    }

    /// One line while the run goes on.
    pub(crate) fn print_row(&self, scenario: Scenario, connections: usize) {
        let parts: Vec<String> = Kind::ALL
            .into_iter()
            .filter_map(|kind| {
                let cpu = self.median(scenario, connections, kind, |sample| sample.cpu_us)?;
                Some(format!("{} {cpu:.1}", kind.name()))
            })
            .collect();
        println!("{:>7} x{connections:<3} CPU µs/op: {}", scenario.name(), parts.join(", "));
    }

    /// The table as Markdown.
    pub(crate) fn print(&self) {
        println!();
        println!(
            "| operation | connections | process | CPU µs/op | × haproxy | × cluster* | ops/s | p50 µs | p99 µs |"
        );
        println!("|---|---|---|---|---|---|---|---|---|");
        for &(scenario, connections, kind) in self.samples.keys() {
            let get = |of: fn(&Sample) -> f64| self.median(scenario, connections, kind, of).unwrap_or(0.0);
            let cpu = get(|sample| sample.cpu_us);
            let ratio = |to: Kind| {
                self.median(scenario, connections, to, |sample| sample.cpu_us)
                    .filter(|base| *base > 0.0 && kind != Kind::Direct)
                    .map_or_else(|| "-".to_owned(), |base| format!("{:.2}", cpu / base))
            };
            println!(
                "| {} | {connections} | {} | {cpu:.1} | {} | {} | {:.0} | {:.0} | {:.0} |",
                scenario.name(),
                kind.name(),
                ratio(Kind::Forwarder),
                ratio(Kind::ServerRouting),
                get(|sample| sample.operations_per_second),
                get(|sample| sample.p50_us),
                get(|sample| sample.p99_us),
            );
        }
    }
}
