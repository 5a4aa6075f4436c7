//! The two API servers: a real kube-apiserver with etcd and our CRDs, and the hub.

use crate::lab::LabProcess;
use crate::{Cluster, Lab, binary, block_on, cache, cluster, command, environment, wait_for};
use anyhow::{Context, Result};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A running API server.
pub struct ApiServer {
    /// Its name in messages.
    pub name: &'static str,
    client: Client,
    kubeconfig: PathBuf,
    dir: PathBuf,
    // Whatever must live as long as the API server.
    backend: ApiServerBackend,
}

enum ApiServerBackend {
    Cluster(Box<Cluster>),
    Hub(
        #[expect(dead_code, reason = "kept alive")] LabProcess,
        #[expect(dead_code, reason = "kept alive")] Lab,
    ),
}

/// An HTTP response.
#[derive(Debug)]
pub struct TestResponse {
    /// The status code.
    pub code: u16,
    /// The body: JSON, or else its text.
    pub body: Value,
    /// The values of the `Warning` headers.
    pub warnings: Vec<String>,
}

/// An HTTP request: method, path, body and media types.
#[derive(Debug)]
pub struct TestRequest<'a> {
    /// The method.
    pub method: Method,
    /// The path with its query.
    pub path: &'a str,
    /// The body.
    pub body: Vec<u8>,
    /// The media type of the body.
    pub content_type: &'a str,
    /// The accepted media type.
    pub accept: &'a str,
}

#[expect(clippy::unwrap_used, reason = "a test that cannot ask has failed")]
impl ApiServer {
    /// A real kube-apiserver.
    pub fn kubernetes() -> Result<Self> {
        let cluster = Cluster::start()?;
        let crds = cache::source_root().join("deploy/crds");
        cluster.install_crds(&[crds.as_path()])?;
        Self::from_cluster(cluster)
    }

    /// A real kube-apiserver with the CRDs that OpenShift publishes. It can be restarted while a
    /// [`WatchLog`](crate::WatchLog) records.
    pub fn openshift() -> Result<Self> {
        let cluster = Cluster::start_with_etcd_watches()?;
        cluster.install_published_crds()?;
        Self::from_cluster(cluster)
    }

    fn from_cluster(cluster: Cluster) -> Result<Self> {
        let client = cluster.client();
        let (kubeconfig, dir) = (cluster.kubeconfig(), cluster.lab().create_dir("kubectl")?);
        let keep = ApiServerBackend::Cluster(Box::new(cluster));
        Ok(Self { name: "kube-apiserver", client, kubeconfig, dir, backend: keep })
    }

    /// The cluster, or `None` for the hub.
    pub fn cluster(&self) -> Option<&Cluster> {
        match &self.backend {
            ApiServerBackend::Cluster(cluster) => Some(cluster),
            ApiServerBackend::Hub(..) => None,
        }
    }

    /// The hub, as `machinist up` starts it.
    pub fn hub() -> Result<Self> {
        Self::hub_with(&[])
    }

    /// The hub, as `machinist up` starts it with these arguments.
    pub fn hub_with(arguments: &[&str]) -> Result<Self> {
        let lab = Lab::new()?;
        // With this directory as `XDG_STATE_HOME`, commands find the hub as they find a user's.
        let data = lab.create_dir("state/machinist")?;
        let kubeconfig = data.join("kubeconfig");
        let mut up = Command::new(binary::machinist_binary()?);
        up.arg("up").arg("--data").arg(&data);
        up.arg("--api-listen").arg(format!("{}:6443", lab.loopback())).args(arguments);
        Self::start_hub(&lab, &up, &kubeconfig)
    }

    /// A hub that a command starts and that writes its kubeconfig to this path.
    pub fn start_hub(lab: &Lab, up: &Command, kubeconfig: &Path) -> Result<Self> {
        let mut process = lab.spawn("machinist-up", up)?;
        let client = wait_for_hub(&mut process, kubeconfig)?;
        let (dir, kubeconfig) = (lab.create_dir("kubectl")?, kubeconfig.to_owned());
        let keep = ApiServerBackend::Hub(process, lab.clone());
        Ok(Self { name: "hub", client, kubeconfig, dir, backend: keep })
    }

    /// Sends a request and accepts any status.
    pub fn request(&self, request: TestRequest<'_>) -> Result<TestResponse> {
        let request = Request::builder()
            .method(request.method)
            .uri(request.path)
            .header("content-type", request.content_type)
            .header("accept", request.accept)
            .body(Body::from(request.body))?;
        block_on(async {
            let response = self.client.send(request).await?;
            let code = response.status().as_u16();
            let warnings = response.headers().get_all("warning").iter();
            let warnings =
                warnings.filter_map(|text| text.to_str().ok().map(str::to_owned)).collect();
            let bytes = response.into_body().collect().await?.to_bytes();
            let body = serde_json::from_slice(&bytes)
                .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
            Ok(TestResponse { code, body, warnings })
        })
    }

    /// Sends a request with a JSON body.
    pub fn request_json(&self, method: Method, path: &str, body: &Value) -> TestResponse {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let content_type = "application/json";
        let request = TestRequest { method, path, body, content_type, accept: "application/json" };
        self.request(request).unwrap()
    }

    /// Sends a GET.
    pub fn get(&self, path: &str) -> TestResponse {
        self.request_json(Method::GET, path, &Value::Null)
    }

    /// Sends a POST.
    pub fn post(&self, path: &str, body: &Value) -> TestResponse {
        self.request_json(Method::POST, path, body)
    }

    /// Sends a PUT.
    pub fn put(&self, path: &str, body: &Value) -> TestResponse {
        self.request_json(Method::PUT, path, body)
    }

    /// Sends a DELETE.
    pub fn delete(&self, path: &str, options: &Value) -> TestResponse {
        self.request_json(Method::DELETE, path, options)
    }

    /// Sends a PATCH. The kind is that of the media type, such as `merge-patch+json`.
    pub fn patch(&self, path: &str, kind: &str, patch: &Value) -> TestResponse {
        let content_type = format!("application/{kind}");
        let body = patch.to_string().into_bytes();
        let request = TestRequest {
            method: Method::PATCH,
            path,
            body,
            content_type: &content_type,
            accept: "application/json",
        };
        self.request(request).unwrap()
    }

    /// The lines of a watch, until the server ends it.
    pub fn watch(&self, path: &str) -> Vec<Value> {
        let request = TestRequest {
            method: Method::GET,
            path,
            body: Vec::new(),
            content_type: "application/json",
            accept: "application/json",
        };
        match self.request(request).unwrap().body {
            Value::String(lines) => {
                lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
            }
            Value::Null => Vec::new(),
            one => vec![one],
        }
    }

    /// Runs `kubectl`. Any exit code is accepted.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<command::ExitOutput> {
        self.kubectl_with(arguments, &[])
    }

    /// Runs `kubectl` with additional environment variables.
    pub fn kubectl_with(
        &self,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<command::ExitOutput> {
        let mut kubectl = Command::new(environment::kubernetes_binary("kubectl")?);
        kubectl.env("KUBECONFIG", &self.kubeconfig).env("HOME", &self.dir);
        kubectl.env("KUBECACHEDIR", self.dir.join(self.name)).args(arguments);
        kubectl.envs(variables.iter().copied());
        command::output(&mut kubectl).context("kubectl")
    }

    /// Runs `machinist` against this API server. Any exit code is accepted.
    pub fn machinist(&self, arguments: &[&str]) -> Result<command::ExitOutput> {
        command::output(self.machinist_command()?.args(arguments)).context("machinist")
    }

    /// The `machinist` command, configured for this API server.
    pub fn machinist_command(&self) -> Result<Command> {
        let mut machinist = Command::new(binary::machinist_binary()?);
        machinist.env("KUBECONFIG", &self.kubeconfig).env("HOME", &self.dir);
        machinist.env_remove("XDG_STATE_HOME").current_dir(cache::source_root());
        Ok(machinist)
    }

    /// A client with all rights.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The kubeconfig of the administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A directory for files that kubectl reads.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Waits until a hub is ready that writes its kubeconfig to this path. Returns a client.
pub fn wait_for_hub(process: &mut LabProcess, kubeconfig: &Path) -> Result<Client> {
    wait_for("the hub to write its kubeconfig", || {
        process.check_alive()?;
        Ok(kubeconfig.exists())
    })?;
    let client = cluster::client(kubeconfig)?;
    wait_for("the hub to be ready", || {
        process.check_alive()?;
        let request = Request::get("/readyz").body(Vec::new())?;
        Ok(block_on(client.request_text(request)).is_ok())
    })?;
    Ok(client)
}
