//! A hub in the test process, with one CRD.
pub(crate) mod tls_hub;

use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt as _;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use machinist_hub::auth::authorizer::{PolicyRule, READ_VERBS, ResourceNames};
use machinist_hub::auth::certificates::CertificateAuthority;
use machinist_hub::auth::{NODE_GROUP, UserInfo};
use machinist_hub::store::{Store, StoreOptions};
use machinist_hub::{Hub, HubConfig};
use serde_json::{Value, json};
use tower::ServiceExt as _;

pub(crate) struct TestHub {
    pub(crate) hub: Hub,
}

impl TestHub {
    pub(crate) async fn start() -> Self {
        Self::start_with(StoreOptions::default()).await
    }

    pub(crate) async fn start_with(options: StoreOptions) -> Self {
        let ca = CertificateAuthority::from_pem(&CertificateAuthority::generate("test").unwrap())
            .unwrap();
        let config = HubConfig {
            crds: vec![test_crd()],
            rules: vec![PolicyRule::new(
                NODE_GROUP,
                READ_VERBS,
                "g.io",
                "things",
                ResourceNames::Any,
            )],
            ca: Some(ca),
            reserved_node_names: ["machine-config-controller".to_owned()].into(),
            ..HubConfig::default()
        };
        let hub = Hub::start(Store::in_memory(options), config).await.unwrap();
        Self { hub }
    }

    pub(crate) fn client(&self) -> kube::Client {
        self.client_as(UserInfo::admin())
    }

    pub(crate) fn client_as(&self, user: UserInfo) -> kube::Client {
        kube::Client::new(self.hub.router_as(user), "default")
    }

    /// Sends a raw request as administrator.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> (StatusCode, Value) {
        let router = self.hub.router_as(UserInfo::admin());
        send(router, method, path, headers, body).await
    }
}

pub(crate) async fn send(
    router: axum::Router,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: String,
) -> (StatusCode, Value) {
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(axum::body::Body::from(body)).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let code = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::String(text)))
}

/// The CRD of the tests.
pub(crate) fn test_crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.g.io"},
        "spec": {
            "group": "g.io",
            "scope": "Cluster",
            "names": {"kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {
                            "type": "object", "default": {},
                            "properties": {"size": {"type": "integer", "default": 5}}
                        },
                        "status": {
                            "type": "object",
                            "properties": {"ready": {"type": "boolean"}}
                        }
                    }
                }}
            }]
        }
    })
}

/// A client for all objects of the test kind.
pub(crate) fn api(server: &TestHub, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("g.io", "v1", "Thing");
    Api::all_with(server.client(), &ApiResource::from_gvk_with_plural(&kind, plural))
}

pub(crate) fn test_object(name: &str, spec: Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "g.io/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec,
        "status": {"ready": false},
    }))
    .unwrap()
}

/// The code and reason of an error.
pub(crate) fn status(error: kube::Error) -> (u16, String) {
    match error {
        kube::Error::Api(status) => (status.code, status.reason.clone()),
        other => panic!("{other}"),
    }
}

/// Waits until a condition holds.
pub(crate) async fn wait_until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if done().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("timed out waiting until {what}");
}
