//! Who slowed a job: what its I/O nodes remember, put together, and what the others do of the same time.

use super::who::Caller;
use super::{App, Rejection};
use crate::questions::ask;
use axum::Json;
use axum::extract::{Extension, Path, Query as Params, State};
use axum::response::{IntoResponse, Response};
use forebay_control::node::{Answer, Question};
use forebay_control::status::Status;
use forebay_control::view::BlameView;
use forebay_sched::SchedulerConfig;
use forebay_types::{Moment, NodeId, SchedulerSpec};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// A slow storage that takes less of a job's time is not asked about.
const LEAST: f64 = 0.01;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BlameParams {
    what_if: Option<String>,
}

pub(super) async fn blame(
    State(shared): App,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    params: Result<Params<BlameParams>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Rejection> {
    let Params(p) = params.map_err(|e| Rejection::new(Status::Invalid, e.body_text()))?;
    let other = p.what_if.map(|spec| spec.parse::<SchedulerConfig>()).transpose();
    let other = other.map_err(|e| Rejection::new(Status::Invalid, format!("what_if: {e}")))?;
    let (asked, only) = (id.clone(), caller.only());
    let began = Instant::now();
    let found = shared.ask(move |core, now| {
        core.owned(&asked, only)?;
        let job = core.job(now, &asked).map(|job| (job.nodes, job.age_ms));
        Ok::<_, crate::core::Refusal>((job, core.nodes(now)))
    });
    let (job, nodes) = found.await??;
    let (on, age_ms) = job.unzip();
    let Ok(Ok(_turn)) = tokio::time::timeout(super::LOOK, shared.questions.turns.acquire()).await else {
        return Err(Rejection::new(Status::Busy, "too many ask the I/O nodes at once: try again"));
    };
    // The job may have been on any of them before: of those that are gone the ones that it is on.
    let concerned =
        nodes.iter().filter(|n| !n.state.is_gone() || on.as_ref().is_some_and(|on| on.contains(&n.id)));
    let what_if = other.as_ref().map(SchedulerSpec::from);
    // An age of 7 ms may be nearly eight.
    let age_ms = age_ms.map(|age| age + began.elapsed().as_millis() as u64 + 1);
    let question = |n: NodeId| (n, Question::Job { job: id.clone(), age_ms, what_if: what_if.clone() });
    let heard = ask(&shared, concerned.map(|n| question(n.id)).collect()).await?;
    let mut view = BlameView { running: on.is_some(), ..BlameView::default() };
    let mut moments: BTreeMap<NodeId, Vec<Moment>> = BTreeMap::new();
    for (node, answer) in heard {
        match answer {
            Ok(Answer::Job(found)) => {
                moments.insert(node, found.moments.clone());
                view.blame.add(&found);
            }
            Ok(_) => view.unheard.push(format!("I/O node {node}: it answers something else")),
            Err(why) => view.unheard.push(format!("I/O node {node}: {why}")),
        }
    }
    if view.blame.storage > view.blame.total * LEAST {
        // Each is asked about the time in which others were slow; what it did itself the job's own nodes have said.
        let about = |node: NodeId| {
            let others = moments.iter().filter(|(n, _)| **n != node).flat_map(|(_, all)| all);
            let moments = Moment::sum(others);
            (moments.iter().map(|m| m.slow).sum::<f64>(), moments)
        };
        let all: Vec<_> =
            moments.keys().map(|n| (*n, about(*n))).filter(|(_, (slow, _))| *slow > 0.0).collect();
        let slow: BTreeMap<NodeId, f64> = all.iter().map(|(n, (slow, _))| (*n, *slow)).collect();
        let questions = all.into_iter().map(|(n, (_, moments))| (n, Question::Moments { moments })).collect();
        let mut answers = Vec::new();
        for (node, answer) in ask(&shared, questions).await? {
            match answer {
                Ok(Answer::Moments(beside)) => answers.push((node, slow[&node], beside)),
                Ok(_) => view.unheard.push(format!("I/O node {node}: it answers something else")),
                Err(why) => view.unheard.push(format!("I/O node {node}: {why}")),
            }
        }
        view.blame.beside(&answers);
    }
    view.blame.moments.clear();
    Ok(Json(view).into_response())
}
