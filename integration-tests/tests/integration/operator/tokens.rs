//! A frontend that asks its callers who they are: by tokens of service accounts, and by the rights that RBAC gives them
//! (rule elasticity-29).

use super::fixture::{Fixture, WITHIN, reason, until_known, with};
use crate::support::supervisor;
use anyhow::{Context as _, Result, ensure};
use integration_tests::sample::CLEAN;
use std::path::PathBuf;
use streams_control_plane::process::{Process, Program};
use streams_control_plane::wait::eventually;
use streams_proto::elasticity::v1::resize_request::WaitFor;
use streams_proto::elasticity::v1::{GetRegionRequest, ListRegionsRequest, ListResizesRequest, ResizeRequest};
use streams_proto::subscription::v1::ListExportsRequest;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

const ASKS: [&str; 2] = ["--authenticate", "token"];
/// The region that the sample of a caller has no right to.
const MODEL: &str = "Score.Model";

/// A call with this message and this token, if any.
fn with_token<T>(message: T, token: Option<&str>) -> Result<Request<T>> {
    let mut request = Request::new(message);
    request.set_timeout(WITHIN);
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse()?);
    }
    Ok(request)
}

/// What a call comes to: its code, and the reason if it is an error.
fn said<T>(answer: Result<T, Status>) -> (Code, String) {
    answer.map_or_else(|status| (status.code(), reason(&status)), |_| (Code::Ok, String::new()))
}

async fn token(it: &Fixture, account: &str, options: &[&str]) -> Result<String> {
    Ok(it.kubectl(&[&["create", "token", account], options].concat()).await?.trim().to_owned())
}

/// The manifest of `deploy/samples` with a caller.
fn sample() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/samples/caller.yaml");
    path.display().to_string()
}

#[tokio::test]
async fn whoever_has_a_token_and_the_right_may_resize_and_nobody_else() -> Result<()> {
    with("tokens", 1, &ASKS, async |it| {
        let job = it.submitted().await?;
        it.kubectl(&["apply", "-f", &sample()]).await?;
        it.kubectl(&["create", "serviceaccount", "stranger"]).await?;
        let audience = ["--audience", "streams-frontend"];
        let balancer = token(it, "balancer", &audience).await?;
        let stranger = token(it, "stranger", &audience).await?;
        let for_others = token(it, "balancer", &[]).await?;
        let api = it.frontend()?.balancer().await?;
        let resize = async |widths: &[(&str, u32)], token: Option<&str>| {
            let idempotency_key = format!("{:x}", fastrand::u128(..));
            let wanted = ResizeRequest { idempotency_key, ..job.resize_request(widths, WaitFor::Committed) };
            let answer = until_known(WITHIN, |_| {
                let (mut api, request) = (api.clone(), with_token(wanted.clone(), token));
                async move { api.resize(request.map_err(|error| Status::internal(error.to_string()))?).await }
            });
            said(answer.await)
        };
        // The API server hears of a new role after a moment.
        eventually("the balancer may resize its region", WITHIN, || async {
            let heard = resize(&[(CLEAN, 3)], Some(&balancer)).await;
            ensure!(heard.0 == Code::Ok, "{heard:?}");
            Ok(())
        })
        .await?;

        let (denied, invalid) = ((Code::PermissionDenied, "ACCESS_DENIED"), (Code::Unauthenticated, "INVALID_TOKEN"));
        let table: [(&[(&str, u32)], Option<&str>, (Code, &str)); 7] = [
            (&[(CLEAN, 2)], None, (Code::Unauthenticated, "NO_TOKEN")),
            (&[(CLEAN, 2)], Some("nobodys"), invalid),
            (&[(CLEAN, 2)], Some(&for_others), invalid),
            (&[(CLEAN, 2)], Some(&stranger), denied),
            (&[(MODEL, 3)], Some(&balancer), denied),
            (&[(CLEAN, 2), (MODEL, 3)], Some(&balancer), denied),
            (&[("Nowhere", 2)], Some(&balancer), denied),
        ];
        for (widths, token, (code, why)) in table {
            let heard = resize(widths, token).await;
            ensure!(heard == (code, why.to_owned()), "{widths:?}: {heard:?}");
        }
        let status = job.status().await?;
        ensure!(status.generation == Some(1), "{:?}", status.generation);

        // Reads, by those who may and by those who may not; the other service asks as well.
        let namespace = it.namespace.clone();
        let subscriptions = it.frontend()?.subscriptions().await?;
        for (token, expected) in [(&balancer, Code::Ok), (&stranger, Code::PermissionDenied)] {
            let (mut api, mut subscriptions, token) = (api.clone(), subscriptions.clone(), Some(token.as_str()));
            let (namespace, job) = (namespace.clone(), job.name().to_owned());
            let region = GetRegionRequest { namespace: namespace.clone(), job, region: CLEAN.to_owned() };
            let regions = ListRegionsRequest { namespace: namespace.clone(), ..ListRegionsRequest::default() };
            let resizes = ListResizesRequest { namespace: namespace.clone(), ..ListResizesRequest::default() };
            let exports = ListExportsRequest { namespace, ..ListExportsRequest::default() };
            let heard = [
                said(api.get_region(with_token(region, token)?).await),
                said(api.list_regions(with_token(regions, token)?).await),
                said(api.list_resizes(with_token(resizes, token)?).await),
            ];
            ensure!(heard.iter().all(|(code, _)| *code == expected), "{heard:?}");
            let status = subscriptions.list_exports(with_token(exports, token)?).await.err().context("it may")?;
            let details = status.get_error_details();
            let missing = details.error_info().and_then(|info| info.metadata.get("resource").cloned());
            ensure!(missing.as_deref() == Some("streamsexports"), "{status:?}");
        }

        // What people have: reflection without a token, and files with one.
        let list = it.grpcurl(&[], &["list"]).await?;
        ensure!(list.contains("streams.elasticity.v1.ElasticityService"), "{list}");
        let files = it.system.state().path();
        let endpoint = format!("http://{}", it.frontend()?.elasticity());
        let plan = ["plan", "sensors", "Clean=4", "--endpoint", &endpoint];
        for (account, token, expected) in [("balancer", &balancer, Some(0)), ("stranger", &stranger, Some(1))] {
            let file = files.join(account).display().to_string();
            std::fs::write(&file, token)?;
            let (status, shown, told) = it.kubectl_streams(&[&plan[..], &["--token-file", &file]].concat()).await?;
            ensure!(status == expected, "{account}: {shown}{told}");
        }
        let program = Program::new("balancer", env!("CARGO_BIN_EXE_balancer"))
            .arguments(["--api", &endpoint, "--token-file", &files.join("balancer").display().to_string()])
            .arguments(["--namespace", &it.namespace, "--job", job.name(), "--region", CLEAN])
            .arguments(["--swing", "--min", "3", "--max", "4", "--every-seconds", "1"])
            .without_proxy();
        let balancer = Process::start(&supervisor(), it.system.state(), program).await?;
        eventually("the sample balancer resizes with its token", WITHIN, || async {
            let told = balancer.last_lines(20);
            ensure!(told.contains("width 4 is in force"), "{told}");
            Ok(())
        })
        .await
    })
    .await
}
