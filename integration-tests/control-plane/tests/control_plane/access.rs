//! Namespaces of their own, and users with no more rights than they were given.

use crate::support::{NOBODY, SOON, control_plane};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Error};
use serde_json::json;
use streams_control_plane::client;
use streams_control_plane::wait::eventually;

/// What the API server says to a list request: 200, or the code of the error.
async fn list<K>(client: &Client, namespace: &str) -> Result<u16>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match Api::<K>::namespaced(client.clone(), namespace).list(&ListParams::default()).await {
        Ok(_) => Ok(200),
        Err(Error::Api(status)) => Ok(status.code),
        Err(other) => Err(other.into()),
    }
}

#[tokio::test]
async fn each_namespace_is_new() -> Result<()> {
    let control_plane = control_plane().await?;
    let (one, other) = (control_plane.namespace("same").await?, control_plane.namespace("same").await?);
    assert_ne!(one, other);
    assert!(one.starts_with("same-") && other.starts_with("same-"), "{one}, {other}");
    Ok(())
}

#[tokio::test]
async fn a_user_without_a_role_may_do_nothing() -> Result<()> {
    let control_plane = control_plane().await?;
    let namespace = control_plane.namespace("access").await?;
    let nobody = client(&control_plane.user_kubeconfig(NOBODY)?).await?;
    assert_eq!(list::<Pod>(&nobody, &namespace).await?, 403);
    assert_eq!(list::<Pod>(&control_plane.client().await?, &namespace).await?, 200);
    assert!(control_plane.user_kubeconfig("a stranger").is_err());
    Ok(())
}

#[tokio::test]
async fn a_service_account_may_do_what_its_role_says() -> Result<()> {
    let control_plane = control_plane().await?;
    let namespace = control_plane.namespace("access").await?;
    let administrator = control_plane.client().await?;
    let create = PostParams::default();

    let accounts = Api::<ServiceAccount>::namespaced(administrator.clone(), &namespace);
    accounts.create(&create, &serde_json::from_value(json!({"metadata": {"name": "reader"}}))?).await?;
    let role = json!({
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
    });
    Api::<Role>::namespaced(administrator.clone(), &namespace).create(&create, &serde_json::from_value(role)?).await?;
    let binding = json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
    });
    Api::<RoleBinding>::namespaced(administrator, &namespace)
        .create(&create, &serde_json::from_value(binding)?)
        .await?;

    let kubeconfig = control_plane.service_account_kubeconfig(&namespace, "reader").await.context("no kubeconfig")?;
    let reader = client(&kubeconfig).await?;
    eventually("the API server knows the role", SOON, || async {
        ensure!(list::<ConfigMap>(&reader, &namespace).await? == 200, "forbidden");
        Ok(())
    })
    .await?;
    assert_eq!(list::<Pod>(&reader, &namespace).await?, 403);
    Ok(())
}
