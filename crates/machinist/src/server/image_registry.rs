//! The names of the cluster's own image registry, which machines outside the cluster cannot reach.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use parking_lot::Mutex;

/// The namespace of the registry.
const NAMESPACE: &str = "openshift-image-registry";
/// How long cached names are valid.
const CACHE_TTL: Duration = Duration::from_secs(60);
/// The timeout of a request to the API server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The HTTP status for a kind that the API server does not serve.
const NOT_FOUND: u16 = 404;

/// The cached names of the registry, fetched on demand. A clone shares the cache.
#[derive(Clone)]
pub(super) struct ImageRegistryNames {
    client: Client,
    cache: Arc<Mutex<CachedNames>>,
}

#[derive(Clone, Default)]
struct CachedNames {
    fetched_at: Option<Instant>,
    hosts: Option<Vec<String>>,
}

impl ImageRegistryNames {
    pub(super) fn new(client: Client) -> Self {
        Self { client, cache: Arc::default() }
    }

    /// The names. While the API server does not respond, the last ones; none if there are none.
    pub(super) async fn hosts(&self) -> Option<Vec<String>> {
        let known = self.cache.lock().clone();
        if known.fetched_at.is_some_and(|at| at.elapsed() < CACHE_TTL) {
            return known.hosts;
        }
        let found = tokio::time::timeout(REQUEST_TIMEOUT, self.fetch()).await;
        let hosts = found.ok().and_then(Result::ok).or(known.hosts);
        let now = CachedNames { fetched_at: Some(Instant::now()), hosts: hosts.clone() };
        *self.cache.lock() = now;
        hosts
    }

    async fn fetch(&self) -> kube::Result<Vec<String>> {
        let all = ListParams::default();
        let services: Api<Service> = Api::namespaced(self.client.clone(), NAMESPACE);
        let services = empty_if_not_served(services.list(&all).await)?;
        let mut hosts: Vec<String> = services.iter().filter_map(host_of).collect();
        let kind = GroupVersionKind::gvk("route.openshift.io", "v1", "Route");
        let kind = ApiResource::from_gvk(&kind);
        let routes: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), NAMESPACE, &kind);
        for route in empty_if_not_served(routes.list(&all).await)? {
            let host = route.data.pointer("/spec/host").and_then(|host| host.as_str());
            hosts.extend(host.map(str::to_owned));
        }
        Ok(hosts)
    }
}

/// A kind that is not served has no objects.
fn empty_if_not_served<K: Clone>(
    list: kube::Result<kube::core::ObjectList<K>>,
) -> kube::Result<Vec<K>> {
    match list {
        Ok(list) => Ok(list.items),
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// `name.namespace.svc:port` of a service.
fn host_of(service: &Service) -> Option<String> {
    let meta = &service.metadata;
    let (name, namespace) = (meta.name.as_ref()?, meta.namespace.as_ref()?);
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref());
    let port = ports.and_then(|ports| ports.first()).map(|port| format!(":{}", port.port));
    Some(format!("{name}.{namespace}.svc{}", port.unwrap_or_default()))
}
