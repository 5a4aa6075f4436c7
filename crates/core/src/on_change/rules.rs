//! The entries of a pool's objects, collected when its config is rendered. They travel in an annotation of the rendered
//! config, because its name covers content only: what a change costs is no content.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{OnChangeEntry, OnChangeError, annotation, parse, wrong};
use crate::api::names::annotation::machinist::ON_CHANGE_RULES;
use crate::api::operator::DisruptionAction;
use crate::api::{MachineConfig, MachineConfigPool};

/// The maximum size of the collected rules. Kubernetes allows 256 KiB for all annotations of an object.
const MAX_RULES_BYTES: usize = 128 << 10;

/// The rules of a rendered config.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OnChangeRules {
    /// Those of MachineConfigs, in merge order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machine_configs: Vec<OwnRule>,
    /// The pool's name.
    pub pool: String,
    /// Those of the pool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub of_pool: Vec<PoolRule>,
}

/// A rule of a MachineConfig.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnRule {
    /// The MachineConfig.
    pub machine_config: String,
    /// Its files and units that the rule is for.
    pub names: Vec<String>,
    /// The actions.
    pub actions: Vec<DisruptionAction>,
}

/// A rule of a pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRule {
    /// The file, directory or unit; `None` if it is for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The actions.
    pub actions: Vec<DisruptionAction>,
}

impl OnChangeRules {
    /// The rules of a pool.
    ///
    /// # Errors
    /// The annotation of the pool cannot be used.
    pub fn of_pool(pool: &MachineConfigPool) -> Result<Self, OnChangeError> {
        let name = pool.metadata.name.clone().unwrap_or_default();
        let mut rules = Self { pool: name, ..Self::default() };
        let Some(text) = annotation(pool.metadata.annotations.as_ref()) else { return Ok(rules) };
        for OnChangeEntry { subject, action } in parse(text)? {
            match rules.of_pool.iter_mut().find(|rule| rule.subject == subject) {
                Some(rule) => rule.actions.push(action),
                None => rules.of_pool.push(PoolRule { subject, actions: vec![action] }),
            }
        }
        Ok(rules)
    }

    /// Adds those of a MachineConfig with these files and units. Each gets the entry with the closest name, otherwise
    /// the entries without a name.
    ///
    /// # Errors
    /// The annotation of the MachineConfig cannot be used.
    pub fn add(&mut self, config: &MachineConfig, names: &[&str]) -> Result<(), OnChangeError> {
        let Some(text) = annotation(config.metadata.annotations.as_ref()) else { return Ok(()) };
        let entries = parse(text)?;
        let unused = entries
            .iter()
            .filter_map(|entry| entry.subject.as_deref())
            .find(|subject| !names.iter().any(|name| covers(subject, name)));
        if let Some(subject) = unused {
            return Err(wrong(
                subject,
                "is no file or unit of this MachineConfig, whose annotation is for its own ones: correct the name, or write the entry on the pool",
            ));
        }
        let mut groups: BTreeMap<Option<&str>, Vec<String>> = BTreeMap::new();
        for name in names {
            let subjects = entries.iter().filter_map(|entry| entry.subject.as_deref());
            let closest =
                subjects.filter(|subject| covers(subject, name)).max_by_key(|it| it.len());
            let is_for_all = entries.iter().any(|entry| entry.subject.is_none());
            if closest.is_some() || is_for_all {
                groups.entry(closest).or_default().push((*name).to_owned());
            }
        }
        let machine_config = config.metadata.name.clone().unwrap_or_default();
        for (subject, names) in groups {
            let own = entries.iter().filter(|entry| entry.subject.as_deref() == subject);
            let actions = own.map(|entry| entry.action.clone()).collect();
            let machine_config = machine_config.clone();
            self.machine_configs.push(OwnRule { machine_config, names, actions });
        }
        Ok(())
    }

    /// A MachineConfig that has a file or unit without a rule ends the rule of an earlier one for it, whose contents
    /// it replaces.
    pub fn end(&mut self, names: &BTreeSet<&str>) {
        for rule in &mut self.machine_configs {
            rule.names.retain(|name| !names.contains(name.as_str()));
        }
        self.machine_configs.retain(|rule| !rule.names.is_empty());
    }

    /// The annotation for a rendered config; `None` if there are no rules.
    ///
    /// # Errors
    /// The rules need too much space.
    pub fn to_annotation(&self) -> Result<Option<String>, OnChangeError> {
        if self.machine_configs.is_empty() && self.of_pool.is_empty() {
            return Ok(None);
        }
        let text = serde_json::to_string(self).unwrap_or_default();
        match text.len() {
            0..=MAX_RULES_BYTES => Ok(Some(text)),
            size => Err(OnChangeError::RulesTooLarge(size)),
        }
    }

    /// The rules of a rendered config. What cannot be read counts as none: then a change costs what it costs without.
    #[must_use]
    pub fn from_rendered(config: &MachineConfig) -> Self {
        let annotations = config.metadata.annotations.as_ref();
        let text = annotations.and_then(|all| all.get(ON_CHANGE_RULES));
        let text = text.filter(|text| text.len() <= MAX_RULES_BYTES);
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// The rule of a MachineConfig for a file or unit.
    #[must_use]
    pub fn own(&self, name: &str) -> Option<&OwnRule> {
        self.machine_configs.iter().rev().find(|rule| rule.names.iter().any(|own| own == name))
    }

    /// The pool's rule for a file or unit: the closest one, otherwise the one for all.
    #[must_use]
    pub fn closest(&self, name: &str) -> Option<&PoolRule> {
        let covering = self.of_pool.iter().filter(|rule| match &rule.subject {
            Some(subject) => covers(subject, name),
            None => true,
        });
        covering.max_by_key(|rule| rule.subject.as_ref().map_or(0, String::len))
    }
}

/// Whether a name of an entry covers a file or unit: it is the same, or a directory above the file.
fn covers(subject: &str, name: &str) -> bool {
    subject == name
        || subject == "/" && name.starts_with('/')
        || name
            .strip_prefix(subject)
            .is_some_and(|rest| subject.starts_with('/') && rest.starts_with('/'))
}
