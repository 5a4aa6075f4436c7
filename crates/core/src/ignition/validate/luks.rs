//! Validates encrypted volumes and how they are unlocked.

use super::super::report::ConfigPath;
use super::super::schema::{Clevis, ClevisCustom, Luks, Tang};
use super::{Validator, check_url, path_problem};

fn is_set(text: Option<&String>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

impl Validator<'_> {
    pub(super) fn luks(&mut self, luks: &Luks, path: &ConfigPath) {
        if luks.name.contains('/') {
            self.report.error(&path.key("name"), "device names cannot contain slashes");
        }
        if luks.label.as_ref().is_some_and(|label| label.len() > 47) {
            let message = "luks device labels cannot be longer than 47 characters";
            self.report.error(&path.key("label"), message);
        }
        let device = luks.device.as_deref().unwrap_or_default();
        let problem =
            if device.is_empty() { Some("disk device is required") } else { path_problem(device) };
        self.error_if(problem, path, "device");
        self.clevis(&luks.clevis, &path.key("clevis"));
        self.resource(&luks.key_file, &path.key("keyFile"));
        let key = luks.key_file.source.as_deref().filter(|source| !source.is_empty());
        if key.is_some_and(|source| check_url(source, self.minor).is_err()) {
            self.report.error(&path.key("keys"), "invalid key-file source");
        }
        if self.minor >= 5 && luks.cex.enabled == Some(true) {
            if is_present(&luks.clevis) {
                self.report.error(&path.key("cex"), "cannot use cex with clevis");
            }
            if key.is_some() {
                self.report.error(&path.key("cex"), "cannot use key file with cex");
            }
        }
    }

    fn clevis(&mut self, clevis: &Clevis, path: &ConfigPath) {
        let others = !clevis.tang.is_empty()
            || clevis.tpm2 == Some(true)
            || clevis.threshold.is_some_and(|threshold| threshold != 0);
        let custom = if self.minor <= 2 {
            clevis.custom != ClevisCustom::default()
        } else {
            is_set(clevis.custom.pin.as_ref())
        };
        if custom && others {
            let message = "cannot use custom clevis config with tpm2, tang, or threshold";
            self.report.error(path, message);
        }
        self.clevis_custom(&clevis.custom, &path.key("custom"));
        for (index, tang) in clevis.tang.iter().enumerate() {
            self.tang(tang, &path.key("tang").index(index));
        }
    }

    fn clevis_custom(&mut self, custom: &ClevisCustom, path: &ConfigPath) {
        let (pin, config) =
            (custom.pin.as_deref().unwrap_or_default(), is_set(custom.config.as_ref()));
        let asks = self.minor >= 3 && custom.needs_network == Some(true);
        if pin.is_empty() && !config && !asks {
            return;
        }
        let problem = match pin {
            "tpm2" | "tang" | "sss" => None,
            "" if self.minor >= 3 => Some("missing required custom clevis pin"),
            _ => Some("unsupported clevis pin"),
        };
        self.error_if(problem, path, "pin");
        if !config {
            self.report.error(&path.key("config"), "missing required custom clevis config");
        }
    }

    fn tang(&mut self, tang: &Tang, path: &ConfigPath) {
        let problem = match crate::go::url::parse(&tang.url) {
            Err(_) => Some("unable to parse url"),
            Ok(url) if matches!(url.scheme.as_str(), "http" | "https") => None,
            Ok(_) => Some("invalid url scheme"),
        };
        self.error_if(problem, path, "url");
        if !is_set(tang.thumbprint.as_ref()) {
            self.report.error(&path.key("thumbprint"), "thumbprint is required");
        }
        let advertisement = tang.advertisement.as_deref().filter(|text| !text.is_empty());
        let is_json = |text: &str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        if advertisement.is_some_and(|text| !is_json(text)) {
            self.report.error(&path.key("advertisement"), "advertisement is not valid JSON");
        }
    }
}

fn is_present(clevis: &Clevis) -> bool {
    is_set(clevis.custom.pin.as_ref())
        || !clevis.tang.is_empty()
        || clevis.tpm2 == Some(true)
        || clevis.threshold.is_some_and(|threshold| threshold != 0)
}
