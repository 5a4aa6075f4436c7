//! The machine config server inside `machinist up`: it talks to the hub without a socket, and shows the hub's certificate.

use std::net::SocketAddr;

use anyhow::Result;
use machinist_hub::Hub;
use machinist_hub::auth::certificates::Pair;
use machinist_hub::auth::{CONTROLLERS, Identity};
use tokio_util::sync::CancellationToken;

use super::{Config, contents};
use crate::server::{
    self, Access, Enrolment, Identity as ServerIdentity, Introduction, Listen, Listening, Place,
    Program, tls,
};

/// Starts the machine config server; says where it listens. What it hands out holds no token but the one
/// that the administrator has put into a file for that.
pub(super) async fn start(
    hub: &Hub,
    config: &Config,
    address: SocketAddr,
    authority: &str,
    certificate: &tls::Certificate,
    figures: &server::Figures,
    stop: &CancellationToken,
) -> Result<(Listening, tokio::task::JoinHandle<Result<()>>)> {
    let who = Identity::new("machinist:server", [CONTROLLERS.to_owned()]);
    let client = kube::Client::new(hub.router_as(who), "default");
    let api_server = config.api_url(address);
    let options = server::Options {
        namespace: contents::NAMESPACE.to_owned(),
        access_namespace: contents::NAMESPACE.to_owned(),
        introduction: Introduction::Known {
            api_server,
            authority: authority.to_owned(),
            token: config.server_join_token_file.clone(),
        },
        may_lack_controller_config: true,
        enrolment: config.server_sealed.as_ref().map(|url| Enrolment {
            url: url.trim_end_matches('/').to_owned(),
            authority: authority.to_owned(),
            authority_file: None,
        }),
        program: config
            .server_first_boot
            .as_ref()
            .map(|url| Program::own(url, true))
            .transpose()?,
    };
    let listen = Listen {
        secure: config.server_listen.map(Place::Address),
        insecure: config.server_insecure_listen.map(Place::Address),
        metrics: None,
        figures: figures.clone(),
        tls: tls::Settings::default(),
        unknown_pool: 404,
        access: Access { tokens: !config.server_anonymous, ..Access::default() },
    };
    let identity = ServerIdentity::Given(certificate.clone());
    let (sender, listening) = tokio::sync::oneshot::channel();
    let ready = move |listening| {
        // Whoever waits for it is still there.
        let _ = sender.send(listening);
    };
    let serving = server::start(client, options, listen, identity, ready, stop.clone());
    let task = tokio::spawn(serving);
    match listening.await {
        Ok(listening) => Ok((listening, task)),
        // It has ended before it began, and says why.
        Err(_) => {
            task.await??;
            Ok((Listening::default(), tokio::spawn(async { Ok(()) })))
        }
    }
}

/// A certificate as the server takes it.
pub(super) fn pair(pair: &Pair) -> tls::Pair {
    tls::Pair { certificate: pair.certificate.clone().into(), key: pair.key.clone().into() }
}
