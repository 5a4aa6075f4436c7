//! The controller in the process of the hub.
//!
//! It calls the hub without a socket. With `--no-controller` only the metrics of the hub are served. Called by `up`.

use std::sync::Arc;
use std::time::Duration;

use machinist_core::template::TemplateTree;
use machinist_hub::Hub;
use machinist_hub::auth::{CONTROLLER_GROUP, UserInfo};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::initial_objects;
use crate::controller::{self, ControllerOptions, UserData};
use crate::kubernetes::lease::ElectionConfig;
use crate::listen;
use crate::liveness::Liveness;
use crate::metrics::{MetricsEndpoint, MetricsOptions, MetricsSource, Readiness};

/// Runs the embedded controller. It calls the hub without a socket. Its identity in the lease never changes, so that
/// after a crash it leads again at once.
pub(super) async fn run(
    hub: Hub,
    templates: Arc<TemplateTree>,
    user_data: Option<UserData>,
    metrics: Option<MetricsOptions>,
    extra_metrics: Vec<MetricsSource>,
    liveness: Liveness,
    stop: CancellationToken,
) {
    let user = UserInfo::new("machinist:controller", [CONTROLLER_GROUP.to_owned()]);
    let client = kube::Client::new(hub.router_as(user), "default");
    let options = ControllerOptions {
        releases_machines: false,
        namespace: initial_objects::NAMESPACE.to_owned(),
        templates,
        election: ElectionConfig {
            namespace: initial_objects::NAMESPACE.to_owned(),
            identity: "machinist-up".to_owned(),
            duration: Duration::from_secs(137),
            renew_deadline: Duration::from_secs(107),
            retry_period: Duration::from_secs(26),
        },
        keeps_disruption_policy: true,
        metrics,
        extra_metrics,
        user_data,
        failures: hub.failures().clone(),
        liveness,
        health: watch::Sender::default(),
    };
    if let Err(error) = controller::run(client, options, stop.cancelled_owned()).await {
        tracing::error!(error = format!("{error:#}"), "the controller failed");
    }
}

/// Serves the metrics of a hub whose controller runs elsewhere, until `stop`.
pub(super) async fn serve_metrics_only(
    hub: Hub,
    metrics: Option<MetricsOptions>,
    sources: Vec<MetricsSource>,
    stop: CancellationToken,
) {
    let mut tasks = JoinSet::new();
    if let Some(serve) = metrics {
        let user = UserInfo::new("machinist:controller", [CONTROLLER_GROUP.to_owned()]);
        let client = kube::Client::new(hub.router_as(user), "default");
        let failures = hub.failures().clone();
        let endpoint = MetricsEndpoint { sources, readiness: Readiness::always(failures) };
        let started = async {
            let listener = listen::bind(serve.listen, "--metrics-listen").await?;
            endpoint.start(listener, &serve.security, Some(client), &mut tasks).await
        };
        if let Err(error) = started.await {
            tracing::error!(error = format!("{error:#}"), "cannot serve metrics");
        }
    }
    stop.cancelled().await;
}
