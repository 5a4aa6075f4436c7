//! The machine config server inside `machinist up`. It calls the hub without a socket and uses the hub's certificate.

use std::net::SocketAddr;

use anyhow::Result;
use machinist_hub::Hub;
use machinist_hub::auth::certificates::PemKeyPair;
use machinist_hub::auth::{CONTROLLER_GROUP, UserInfo};
use tokio_util::sync::CancellationToken;

use super::{UpConfig, initial_objects};
use crate::liveness::Liveness;
use crate::metrics::MetricsSecurity;
use crate::server::{
    self, AccessOptions, ApiAccess, EnrolmentOptions, ListenAddress, ListenAddresses,
    ListenOptions, ServedBinary, ServingIdentity as ServerIdentity, tls,
};
use crate::serving_certificate::{PemPair, ServingCertificate};

/// Starts the machine config server; returns its listen addresses. Its configs contain no token except the one in
/// `--server-join-token-file`.
pub(super) async fn start(
    hub: &Hub,
    config: &UpConfig,
    address: SocketAddr,
    authority: &str,
    certificate: &ServingCertificate,
    (metrics, liveness): (&server::ServerMetrics, &Liveness),
    stop: &CancellationToken,
) -> Result<(ListenAddresses, tokio::task::JoinHandle<Result<()>>)> {
    let user = UserInfo::new("machinist:server", [CONTROLLER_GROUP.to_owned()]);
    let client = kube::Client::new(hub.router_as(user), "default");
    let api_server = config.api_url(address);
    let options = server::ServerOptions {
        namespace: initial_objects::NAMESPACE.to_owned(),
        access_namespace: initial_objects::NAMESPACE.to_owned(),
        api_access: ApiAccess::Static {
            api_server,
            authority: authority.to_owned(),
            token: config.server_join_token_file.clone(),
        },
        controller_config_optional: true,
        enrolment: config.server_sealed.as_ref().map(|url| EnrolmentOptions {
            url: url.trim_end_matches('/').to_owned(),
            ca: authority.to_owned(),
            ca_file: None,
        }),
        binary: config
            .server_first_boot
            .as_ref()
            .map(|url| ServedBinary::current(url, true))
            .transpose()?,
    };
    let listen = ListenOptions {
        secure: config.server_listen.map(ListenAddress::Address),
        insecure: config.server_insecure_listen.map(ListenAddress::Address),
        metrics_listen: None,
        metrics_security: MetricsSecurity::default(),
        metrics_registry: metrics.clone(),
        failures: hub.failures().clone(),
        liveness: liveness.clone(),
        tls: tls::ServerTlsSettings::default(),
        unknown_pool_status: 404,
        access: AccessOptions {
            require_token: !config.server_anonymous,
            ..AccessOptions::default()
        },
    };
    let identity = ServerIdentity::Provided(certificate.clone());
    let (sender, listening) = tokio::sync::oneshot::channel();
    let ready = move |listening| {
        // The receiver is still waiting.
        let _ = sender.send(listening);
    };
    let serving = server::start(client, options, listen, identity, ready, stop.clone());
    let task = tokio::spawn(serving);
    match listening.await {
        Ok(listening) => Ok((listening, task)),
        // The server ended before it listened: return its error.
        Err(_) => {
            task.await??;
            Ok((ListenAddresses::default(), tokio::spawn(async { Ok(()) })))
        }
    }
}

/// Converts a certificate for the server.
pub(super) fn to_pem_pair(pair: &PemKeyPair) -> PemPair {
    PemPair { certificate: pair.certificate.clone().into(), key: pair.key.clone().into() }
}
