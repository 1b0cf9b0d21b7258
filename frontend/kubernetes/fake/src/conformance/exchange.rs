//! The parts of a case.

use kube::api::PropagationPolicy;
use serde_json::Value;

/// A list of calls and their answers.
#[derive(Clone, Debug)]
pub struct Case {
    /// What the case states.
    pub name: &'static str,
    /// The calls, one after the other.
    pub exchanges: Vec<Exchange>,
}

/// The kind that a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleKind {
    /// A ConfigMap: no status, no generation.
    ConfigMap,
    /// A [`Sample`](super::Sample): a custom resource.
    Sample,
    /// A pod.
    Pod,
    /// A Secret.
    Secret,
    /// A Service: a list of ports, and a selector.
    Service,
}

/// What is called.
#[derive(Clone, Debug)]
pub enum Action {
    /// Create this object.
    Create(Value),
    /// Replace it.
    Replace(Value),
    /// Replace its status.
    ReplaceStatus(Value),
    /// Apply it; with force, conflicts are taken over.
    Apply {
        /// The object.
        object: Value,
        /// Whether conflicts are taken over.
        force: bool,
    },
    /// Patch the object of this name.
    Merge(&'static str, Value),
    /// Delete the object of this name.
    Delete {
        /// Its name.
        name: &'static str,
        /// What becomes of its dependents.
        propagation: Option<PropagationPolicy>,
        /// It must have this uid.
        uid: Option<&'static str>,
        /// It must have this version.
        version: Option<&'static str>,
        /// How long it may still run, in seconds.
        grace: Option<u32>,
    },
    /// Read the object of this name.
    Get(&'static str),
    /// Wait until the garbage collector has removed the object of this name.
    Collected(&'static str),
}

/// A call and its answer.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The kind.
    pub kind: SampleKind,
    /// The field manager.
    pub manager: &'static str,
    /// The call.
    pub action: Action,
    /// The answer.
    pub answer: Answer,
}

/// What a call must be answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// An object with these fields; `null` stands for a field that is not there. A read waits until it is so.
    Has(Value),
    /// The same, and the version of the object is the one that was known before.
    Unchanged,
    /// There is no such object.
    Nothing,
    /// A refusal with this status code and reason.
    Refused(u16, &'static str),
}

impl Exchange {
    fn new(kind: SampleKind, action: Action) -> Self {
        Self { kind, manager: "first", action, answer: Answer::Has(Value::Object(serde_json::Map::new())) }
    }

    /// In the name of this manager.
    pub fn by(self, manager: &'static str) -> Self {
        Self { manager, ..self }
    }

    /// The answer has these fields.
    pub fn has(self, fields: Value) -> Self {
        Self { answer: Answer::Has(fields), ..self }
    }

    /// The call changes nothing.
    pub fn unchanged(self) -> Self {
        Self { answer: Answer::Unchanged, ..self }
    }

    /// There is no such object.
    pub fn nothing(self) -> Self {
        Self { answer: Answer::Nothing, ..self }
    }

    /// The call is refused.
    pub fn refused(self, code: u16, reason: &'static str) -> Self {
        Self { answer: Answer::Refused(code, reason), ..self }
    }

    /// With this propagation; for deletions.
    pub fn propagating(mut self, policy: PropagationPolicy) -> Self {
        if let Action::Delete { propagation, .. } = &mut self.action {
            *propagation = Some(policy);
        }
        self
    }

    /// Only the object with this uid; for deletions.
    pub fn of_uid(mut self, wanted: &'static str) -> Self {
        if let Action::Delete { uid, .. } = &mut self.action {
            *uid = Some(wanted);
        }
        self
    }

    /// Only the object with this version; for deletions.
    pub fn of_version(mut self, wanted: &'static str) -> Self {
        if let Action::Delete { version, .. } = &mut self.action {
            *version = Some(wanted);
        }
        self
    }

    /// At once; for deletions of pods.
    pub fn at_once(mut self) -> Self {
        if let Action::Delete { grace, .. } = &mut self.action {
            *grace = Some(0);
        }
        self
    }
}

impl SampleKind {
    pub(super) fn create(self, object: Value) -> Exchange {
        Exchange::new(self, Action::Create(object))
    }

    pub(super) fn replace(self, object: Value) -> Exchange {
        Exchange::new(self, Action::Replace(object))
    }

    pub(super) fn replace_status(self, object: Value) -> Exchange {
        Exchange::new(self, Action::ReplaceStatus(object))
    }

    pub(super) fn apply(self, object: Value) -> Exchange {
        Exchange::new(self, Action::Apply { object, force: false })
    }

    pub(super) fn force(self, object: Value) -> Exchange {
        Exchange::new(self, Action::Apply { object, force: true })
    }

    pub(super) fn merge(self, name: &'static str, patch: Value) -> Exchange {
        Exchange::new(self, Action::Merge(name, patch))
    }

    pub(super) fn delete(self, name: &'static str) -> Exchange {
        Exchange::new(self, Action::Delete { name, propagation: None, uid: None, version: None, grace: None })
    }

    pub(super) fn get(self, name: &'static str) -> Exchange {
        Exchange::new(self, Action::Get(name))
    }

    pub(super) fn collected(self, name: &'static str) -> Exchange {
        Exchange::new(self, Action::Collected(name)).nothing()
    }
}
