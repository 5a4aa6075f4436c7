//! Validates resources to fetch: URL, compression, headers and checksum.

use super::super::data_url;
use super::super::report::ConfigPath;
use super::super::schema::{Resource, Verification};
use super::Validator;
use crate::go::url::{self, GoUrl};

impl Validator<'_> {
    pub(super) fn resource(&mut self, resource: &Resource, path: &ConfigPath) {
        if !matches!(resource.compression.as_deref(), None | Some("" | "gzip")) {
            self.report.error(&path.key("compression"), "invalid compression method");
        }
        if resource.verification.hash.is_some() && resource.source.is_none() {
            let path = path.key("verification").key("hash");
            self.report.error(&path, "source must be specified if verification is specified");
        }
        self.source(resource, path);
        self.headers(resource, path);
        self.verification(&resource.verification, path);
    }

    /// A config or certificate to fetch; before 3.1 it had fewer fields than other resources.
    pub(super) fn reference(&mut self, resource: &Resource, path: &ConfigPath) {
        if self.minor >= 1 {
            return self.resource(resource, path);
        }
        self.source(resource, path);
        self.verification(&resource.verification, path);
    }

    fn source(&mut self, resource: &Resource, path: &ConfigPath) {
        if let Some(source) = resource.source.as_deref().filter(|source| !source.is_empty())
            && let Err(problem) = check_url(source, self.minor)
        {
            self.report.error(&path.key("source"), problem);
        }
    }

    fn headers(&mut self, resource: &Resource, path: &ConfigPath) {
        if resource.http_headers.is_empty() {
            return;
        }
        let headers = path.key("httpHeaders");
        match resource.source.as_deref().filter(|source| !source.is_empty()).map(url::parse) {
            Some(Ok(url)) if matches!(url.scheme.as_str(), "http" | "https") => {}
            Some(Ok(_)) => {
                self.report.error(&headers, "cannot use HTTP headers with this source scheme");
            }
            Some(Err(_)) | None => self.report.error(&headers, "unable to parse url"),
        }
        for (index, header) in resource.http_headers.iter().enumerate() {
            let path = headers.index(index);
            if header.name.is_empty() {
                self.report.error(&path.key("name"), "HTTP header name can't be empty");
            }
            if header.value.as_deref() == Some("") {
                self.report.error(&path.key("value"), "unable to parse HTTP header");
            }
        }
    }

    fn verification(&mut self, verification: &Verification, path: &ConfigPath) {
        let Some(hash) = &verification.hash else { return };
        let problem = match hash.split_once('-') {
            None => Some("malformed hash specifier"),
            Some(("sha512", sum)) => (sum.len() != 128).then_some("incorrect size for hash sum"),
            Some(("sha256", sum)) if self.minor >= 1 => {
                (sum.len() != 64).then_some("incorrect size for hash sum")
            }
            Some(_) => Some("unrecognized hash function"),
        };
        self.error_if(problem, &path.key("verification"), "hash");
    }

    /// Reports a missing source if one is required.
    pub(super) fn required_source(&mut self, resource: &Resource, path: &ConfigPath) {
        match resource.source.as_deref().filter(|source| !source.is_empty()) {
            None => self.report.error(path, "source is required"),
            Some(source) => {
                if let Err(problem) = check_url(source, self.minor) {
                    self.report.error(path, problem);
                }
            }
        }
    }
}

/// Checks whether contents can be fetched from a URL in the specification `3.<minor>.0`.
pub(crate) fn check_url(source: &str, minor: u8) -> Result<(), String> {
    let url = url::parse(source).map_err(|invalid| invalid.to_string())?;
    match url.scheme.as_str() {
        "http" | "https" | "tftp" => Ok(()),
        "gs" if minor >= 2 => Ok(()),
        "s3" => check_object_version(&url),
        "arn" if minor >= 4 => check_arn(&url),
        "data" => data_url::check(source).map_err(|problem| problem.to_string()),
        _ => Err("invalid url scheme".to_owned()),
    }
}

fn check_object_version(url: &GoUrl<'_>) -> Result<(), String> {
    match url.query_value("versionId") {
        Some(version) if version.is_empty() => Err("invalid S3 object VersionId".to_owned()),
        _ => Ok(()),
    }
}

fn check_arn(url: &GoUrl<'_>) -> Result<(), String> {
    // arn:partition:service:region:account:resource
    let sections: Vec<&str> = url.opaque.splitn(5, ':').collect();
    let invalid = || Err("invalid S3 ARN format".to_owned());
    let &[partition, service, _, _, resource] = sections.as_slice() else { return invalid() };
    if partition.is_empty() && service.is_empty() || service != "s3" {
        return invalid();
    }
    let slashes = url.opaque.matches('/').count();
    if slashes < if resource.starts_with("accesspoint/") { 2 } else { 1 } {
        return invalid();
    }
    check_object_version(url)
}
