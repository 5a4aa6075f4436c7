//! The lab's network: a bridge, and for every machine a network namespace connected to it by a veth pair.

use super::Lab;
use crate::command::run_args;
use anyhow::{Context, Result};

/// A network namespace on the lab's bridge.
#[derive(Debug, Clone)]
pub struct NetworkPort {
    /// The name of the namespace, as `ip netns` knows it.
    pub namespace: String,
    /// The address inside.
    pub address: String,
    /// The number of the host: the address' last byte.
    pub host: u8,
    /// The host's end of the veth pair.
    link: String,
}

impl Lab {
    /// Creates the bridge once. A server that listens on the lab's address before the first machine exists needs it.
    pub fn create_bridge(&self) -> Result<()> {
        let _guard = self.0.setup.lock();
        if self.0.bridge.get().is_none() {
            let name = self.name();
            ip(&format!("link add {name} type bridge forward_delay 0"))?;
            ip(&format!("addr add {}/24 dev {name}", self.address()))?;
            ip(&format!("link set {name} up"))?;
            let _ = self.0.bridge.set(());
        }
        Ok(())
    }

    /// A new network namespace with an address on the bridge. It exists until the lab ends.
    pub fn create_port(&self) -> Result<NetworkPort> {
        self.create_bridge()?;
        let (lab, host) = (self.name(), self.next_host());
        let (namespace, link) = (format!("{lab}-{host}"), format!("{lab}-{host}"));
        let address = format!("10.77.{}.{host}", self.number());
        ip(&format!("netns add {namespace}"))?;
        ip(&format!("link add {link} type veth peer name host0 netns {namespace}"))?;
        ip(&format!("link set {link} master {lab} up"))?;
        ip(&format!("-n {namespace} link set lo up"))?;
        ip(&format!("-n {namespace} addr add {address}/24 dev host0"))?;
        ip(&format!("-n {namespace} link set host0 up"))?;
        ip(&format!("-n {namespace} route add default via {}", self.address()))?;
        Ok(NetworkPort { namespace, address, host, link })
    }
}

impl NetworkPort {
    /// Disconnects the machine from the bridge.
    pub fn link_down(&self) -> Result<()> {
        ip(&format!("link set {} down", self.link))
    }

    /// Reconnects the machine to the bridge.
    pub fn link_up(&self) -> Result<()> {
        ip(&format!("link set {} up", self.link))
    }
}

/// Runs `ip` with arguments separated by spaces.
pub(crate) fn ip(args: &str) -> Result<()> {
    run_args("ip", args.split(' ')).map(drop).with_context(|| format!("ip {args}"))
}
