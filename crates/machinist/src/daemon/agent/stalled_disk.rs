//! Reports a disk that does not answer while a step waits for it. `core::daemon::stall` decides when. Called by the loop
//! of the agent, beside each reconcile.

use std::convert::Infallible;
use std::time::Duration;

use machinist_core::daemon::annotations;
use machinist_core::daemon::stall::StallDetector;
use tokio::time::Instant;

use super::super::root::work_on_disk;
use super::metrics::DaemonMetrics;
use super::own_node::OwnNode;
use super::report::Reporter;

/// How often the progress is looked at.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// What is needed to report.
#[derive(Debug, Clone)]
pub(super) struct StallReporter {
    pub(super) own_node: OwnNode,
    pub(super) reporter: Reporter,
    pub(super) metrics: DaemonMetrics,
}

impl StallReporter {
    /// Reports each stall, for as long as the caller waits.
    pub(super) async fn report_stalls(self) -> Infallible {
        let (mut detector, begin) = (StallDetector::default(), Instant::now());
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let Some(reason) = detector.observe(begin.elapsed(), work_on_disk()) else { continue };
            tracing::error!(reason, "the disk does not answer");
            self.metrics.set_state(machinist_core::api::names::state::DEGRADED, &reason);
            let Some(node) = self.own_node.get() else { continue };
            self.reporter.warn(&node, "DiskStalled", reason.as_str());
            if let Err(error) = self.own_node.annotate(annotations::stalled(&reason)).await {
                let error = format_args!("{error:#}");
                tracing::warn!(%error, "cannot report the stalled disk on the Node");
            }
        }
    }
}
