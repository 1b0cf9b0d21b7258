//! Holding the operator between a plan and its texts: an admission policy on the namespace refuses the texts of PEs.
//!
//! A quota could not: plan and texts are ConfigMaps, and the first texts are written while the plan is stored, so that
//! chance would say which of them there is room for (rule job-3).
//!
//! | Texts are refused of | and a resize comes to |
//! |---|---|
//! | all PEs | a plan that is stored and proposed, and no text |
//! | PEs with an odd id | a plan that is stored and proposed, and some of its texts |
//!
//! A plan may be proposed before the first of its texts is there: [`RefusedTexts::until_reached`] waits for both.

use super::fixture::{Fixture, WITHIN};
use anyhow::{Result, ensure};
use integration_tests::system::job::ObservedJob;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;
use std::collections::BTreeSet;
use streams_api::{condition, names};
use streams_control_plane::wait::eventually;

/// What is said of a text that is refused.
const HELD_BACK: &str = "the test holds texts back";

/// Whose texts are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Texts {
    OfAllPes,
    OfOddPes,
}

/// A policy that is in force until it is lifted.
pub(crate) struct RefusedTexts {
    policies: Api<ValidatingAdmissionPolicy>,
    bindings: Api<ValidatingAdmissionPolicyBinding>,
    config_maps: Api<ConfigMap>,
    name: String,
    texts: Texts,
    /// Names of the texts that were there when it came into force.
    before: BTreeSet<String>,
}

impl RefusedTexts {
    /// No such text can be created from now on.
    pub(crate) async fn from_now_on(it: &Fixture, texts: Texts) -> Result<Self> {
        let expression = match texts {
            Texts::OfAllPes => "false".to_owned(),
            Texts::OfOddPes => format!("int(object.metadata.labels['{}']) % 2 == 0", names::LABEL_PE),
        };
        let name = format!("texts.{}", it.namespace);
        let policy = json!({"metadata": {"name": name}, "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": it.namespace}},
                "objectSelector": {"matchLabels": {names::LABEL_PART: names::PART_AADL}},
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]},
                ],
            },
            "validations": [{"expression": expression, "message": HELD_BACK}],
        }});
        let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
        let config_maps = Api::namespaced(it.client.clone(), &it.namespace);
        let it = Self {
            policies: Api::all(it.client.clone()),
            bindings: Api::all(it.client.clone()),
            before: names_of_texts(&config_maps).await?,
            config_maps,
            name,
            texts,
        };
        it.policies.create(&PostParams::default(), &serde_json::from_value(policy)?).await?;
        it.bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
        eventually("texts are refused", WITHIN, || async {
            let is_refused = it.is_text_refused().await?;
            ensure!(is_refused, "one would be taken");
            Ok(())
        })
        .await?;
        Ok(it)
    }

    /// Waits until a resize of this job, which is the only one of the namespace, has come as far as it can: its plan is
    /// proposed, it says that texts are held back, and if some are taken, one of these is there.
    pub(crate) async fn until_reached(&self, job: &ObservedJob) -> Result<()> {
        job.until("a plan is proposed", WITHIN, |status| {
            ensure!(status.proposal.is_some(), "no proposal");
            Ok(())
        })
        .await?;
        job.until_told(condition::PROGRESSING, &[HELD_BACK], WITHIN).await?;
        if self.texts == Texts::OfAllPes {
            return Ok(());
        }
        eventually("a text that is taken is there", WITHIN, || async {
            let texts = names_of_texts(&self.config_maps).await?;
            ensure!(!texts.is_subset(&self.before), "none is new: {texts:?}");
            Ok(())
        })
        .await
    }

    /// Lifts it.
    pub(crate) async fn lift(self) -> Result<()> {
        self.bindings.delete(&self.name, &DeleteParams::default()).await?;
        self.policies.delete(&self.name, &DeleteParams::default()).await?;
        eventually("texts are taken", WITHIN, || async {
            let is_refused = self.is_text_refused().await?;
            ensure!(!is_refused, "one would be refused");
            Ok(())
        })
        .await
    }

    /// Whether the text of a PE with an odd id would be.
    async fn is_text_refused(&self) -> Result<bool> {
        let labels = json!({names::LABEL_PART: names::PART_AADL, names::LABEL_PE: "1"});
        let text = serde_json::from_value(json!({"metadata": {"generateName": "text-", "labels": labels}}))?;
        match self.config_maps.create(&PostParams { dry_run: true, ..PostParams::default() }, &text).await {
            Ok(_) => Ok(false),
            Err(kube::Error::Api(status)) if status.message.contains(HELD_BACK) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

/// Names of the texts of PEs that are there.
async fn names_of_texts(config_maps: &Api<ConfigMap>) -> Result<BTreeSet<String>> {
    let texts = ListParams::default().labels(&format!("{}={}", names::LABEL_PART, names::PART_AADL));
    Ok(config_maps.list(&texts).await?.items.iter().map(|text| text.name_any()).collect())
}
