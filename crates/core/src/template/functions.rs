//! MCO's template functions, in addition to Go's built-ins.

use std::sync::Arc;

use gotmpl::{FuncMap, Template, TemplateError, Value, ValueFunc};

use super::builtins;
use super::layers::PlatformInfrastructure;
use super::platform;
use super::template_data;
use crate::go::url;

/// The functions for one cluster.
#[derive(Clone)]
pub(super) struct TemplateFunctions {
    map: FuncMap,
}

/// The result of a function.
pub(super) type FunctionResult = Result<Value, String>;

/// A function that reads the cluster's infrastructure.
type ClusterFunction = fn(&PlatformInfrastructure) -> FunctionResult;

/// The functions that read the infrastructure. A template calls each as `{{name .}}`.
const CLUSTER_FUNCTIONS: [(&str, ClusterFunction); 13] = [
    ("cloudProvider", platform::cloud_provider),
    ("credentialProviderConfigFlag", platform::credential_provider_config_flag),
    ("onPremPlatformShortName", platform::short_name),
    ("onPremPlatformAPIServerInternalIP", platform::api_server_internal_ip),
    ("onPremPlatformAPIServerInternalIPs", platform::api_server_internal_ips),
    ("onPremPlatformIngressIP", platform::ingress_ip),
    ("onPremPlatformIngressIPs", platform::ingress_ips),
    ("isOpenShiftManagedDefaultLB", platform::is_managed_default_load_balancer),
    ("dnsRecordsType", platform::dns_records_type),
    ("cloudPlatformAPIIntLoadBalancerIPs", platform::api_int_load_balancer_ips),
    ("cloudPlatformAPILoadBalancerIPs", platform::api_load_balancer_ips),
    ("cloudPlatformIngressLoadBalancerIPs", platform::ingress_load_balancer_ips),
    ("platformType", platform::platform_type),
];

impl TemplateFunctions {
    pub(super) fn new(infrastructure: &PlatformInfrastructure) -> Self {
        let infrastructure = Arc::new(infrastructure.clone());
        let mut map = FuncMap::new();
        for (name, function) in CLUSTER_FUNCTIONS {
            let infrastructure = Arc::clone(&infrastructure);
            map.insert(
                name.to_owned(),
                function_of(name, move |[config]: &[Value; 1]| {
                    // Go requires the whole configuration here; inside `range` the dot is something else.
                    if config.field("Infra").is_none() {
                        return Err("wrong type for value; expected the configuration (pass $, \
                                    the dot is something else here)"
                            .to_owned());
                    }
                    function(&infrastructure)
                }),
            );
        }
        map.insert("toString".to_owned(), function_of("toString", |[v]: &[Value; 1]| to_string(v)));
        map.insert("indent".to_owned(), function_of("indent", |[n, v]: &[Value; 2]| indent(n, v)));
        map.insert("skip".to_owned(), function_of("skip", |[key]: &[Value; 1]| skip(key)));
        map.insert("urlHost".to_owned(), function_of("urlHost", |[u]: &[Value; 1]| url_host(u)));
        map.insert("urlPort".to_owned(), function_of("urlPort", |[u]: &[Value; 1]| url_port(u)));
        map.insert("join".to_owned(), function_of("join", |[l, s]: &[Value; 2]| join(l, s)));
        builtins::add_builtins(&mut map);
        Self { map }
    }

    /// For plain data without byte slices: every list is a list.
    pub(super) fn plain() -> Self {
        let mut functions = Self::new(&PlatformInfrastructure::default());
        let to_string =
            function_of("toString", |[value]: &[Value; 1]| Ok(value.to_string().into()));
        functions.map.insert("toString".to_owned(), to_string);
        functions
    }

    pub(super) fn add_to(&self, template: Template) -> Template {
        template.funcs(self.map.clone())
    }
}

/// Wraps a function with a fixed number of arguments for the engine.
fn function_of<const N: usize>(
    name: &'static str,
    function: impl Fn(&[Value; N]) -> FunctionResult + Send + Sync + 'static,
) -> ValueFunc {
    self::function(name, move |arguments| {
        let fixed: Result<&[Value; N], _> = arguments.try_into();
        let fixed =
            fixed.map_err(|_| format!("wrong number of args: want {N} got {}", arguments.len()))?;
        function(fixed)
    })
}

/// Wraps a function with any number of arguments for the engine.
pub(super) fn function(
    name: &'static str,
    function: impl Fn(&[Value]) -> FunctionResult + Send + Sync + 'static,
) -> ValueFunc {
    Arc::new(move |arguments: &[Value]| {
        function(arguments)
            .map_err(|message| TemplateError::Exec(format!("error calling {name}: {message}")))
    })
}

/// The text of a value that has to be a string.
fn text(value: &Value) -> Result<&str, String> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(format!("wrong type for value; expected string; got {}", other.type_name())),
    }
}

fn to_string(value: &Value) -> FunctionResult {
    let bytes: Option<Vec<u8>> = match value {
        Value::List(items) if !items.is_empty() => items
            .iter()
            .map(|item| match item {
                Value::Uint(byte) => u8::try_from(*byte).ok(),
                _ => None,
            })
            .collect(),
        // An empty byte slice looks like any empty list; template data contains only the former.
        Value::List(_) => Some(Vec::new()),
        _ => None,
    };
    match bytes {
        Some(bytes) => String::from_utf8(bytes)
            .map(Value::from)
            .map_err(|_| "the bytes are not UTF-8 text".to_owned()),
        None => Ok(value.to_string().into()),
    }
}

fn indent(spaces: &Value, value: &Value) -> FunctionResult {
    let spaces = spaces
        .as_int()
        .and_then(|spaces| usize::try_from(spaces).ok())
        .ok_or("the number of spaces is not a whole number from 0 on")?;
    let pad = " ".repeat(spaces.min(1024));
    Ok(format!("{pad}{}", text(value)?.replace('\n', &format!("\n{pad}"))).into())
}

/// Keeps a key as a placeholder for a later rendering of the file.
fn skip(key: &Value) -> FunctionResult {
    let key = text(key)?;
    let starts_well = key.starts_with(|c: char| c == '_' || c.is_ascii_lowercase());
    if !starts_well || !key.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric()) {
        return Err("invalid key for skipKey".to_owned());
    }
    Ok(format!("{{{{.{key}}}}}").into())
}

/// The authority of a URL, split into host and port.
fn host_and_port(url: &str) -> (&str, &str) {
    let rest = url.split_once("//").map_or("", |(_, rest)| rest);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = &rest[..end];
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if let Some((address, port)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        return (address, port.strip_prefix(':').unwrap_or_default());
    }
    host.rsplit_once(':').unwrap_or((host, ""))
}

fn url_host(url: &Value) -> FunctionResult {
    let url = text(url)?;
    url::parse(url).map_err(|_| format!("invalid url: {url}"))?;
    Ok(host_and_port(url).0.into())
}

fn url_port(url: &Value) -> FunctionResult {
    let url = text(url)?;
    let parsed = url::parse(url).map_err(|_| format!("invalid url: {url}"))?;
    match (host_and_port(url).1, parsed.scheme.as_str()) {
        ("", "https") => Ok("443".into()),
        ("", "http") => Ok("80".into()),
        ("", _) => Err(format!("unknown scheme in {url}")),
        (port, _) => Ok(port.into()),
    }
}

fn join(list: &Value, separator: &Value) -> FunctionResult {
    let Value::List(items) = list else {
        return Err(format!("wrong type for value; expected []string; got {}", list.type_name()));
    };
    let texts: Result<Vec<&str>, String> = items.iter().map(text).collect();
    Ok(texts?.join(text(separator)?).into())
}

/// A list of strings from JSON.
pub(super) fn texts(json: Option<&serde_json::Value>) -> Value {
    let items = json.and_then(serde_json::Value::as_array);
    template_data::list(items.into_iter().flatten().map(template_data::untyped))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Value {
        template_data::list(text.bytes().map(|byte| Value::Uint(byte.into())))
    }

    fn shown(answer: FunctionResult) -> String {
        answer.map_or_else(|error| format!("error: {error}"), |value| value.to_string())
    }

    #[test]
    fn text_functions() {
        for (answer, expected) in [
            (to_string(&bytes("a\nb")), "a\nb"),
            (to_string(&bytes("")), ""),
            (to_string(&Value::Int(3)), "3"),
            (to_string(&"x".into()), "x"),
            (
                to_string(&template_data::list([Value::Uint(0xff)])),
                "error: the bytes are not UTF-8 text",
            ),
            (indent(&Value::Int(2), &"a\n\nb".into()), "  a\n  \n  b"),
            (indent(&Value::Int(0), &"a".into()), "a"),
            (skip(&"etcd_index".into()), "{{.etcd_index}}"),
            (skip(&"_x9".into()), "{{._x9}}"),
            (skip(&"Upper".into()), "error: invalid key for skipKey"),
            (skip(&"a-b".into()), "error: invalid key for skipKey"),
            (skip(&"".into()), "error: invalid key for skipKey"),
            (url_host(&"https://api.example.com:6443/x".into()), "api.example.com"),
            (url_host(&"https://[fd00::1]:6443".into()), "fd00::1"),
            (url_host(&"https://user@host".into()), "host"),
            (url_host(&"host".into()), ""),
            (url_host(&"http://[::1".into()), "error: invalid url: http://[::1"),
            (url_port(&"https://api.example.com:6443".into()), "6443"),
            (url_port(&"https://api.example.com".into()), "443"),
            (url_port(&"http://[fd00::1]".into()), "80"),
            (url_port(&"ftp://x".into()), "error: unknown scheme in ftp://x"),
            (join(&template_data::list(["a".into(), "b".into()]), &",".into()), "a,b"),
            (join(&template_data::list([]), &",".into()), ""),
        ] {
            assert_eq!(shown(answer), expected);
        }
    }
}
