//! What I/O nodes are asked about their last requests: for whoever asks the arbiter, who need not reach them.

use crate::service::{NotLeading, Shared};
use forebay_control::node::{Answer, Question, ToNode};
use forebay_types::NodeId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};

/// How long a node may take to go through what it remembers.
const PATIENCE: Duration = Duration::from_secs(8);

/// So many people are answered at a time: each takes all nodes up.
const AT_A_TIME: usize = 2;

/// The questions to which answers are to come.
pub(crate) struct Questions {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, (NodeId, oneshot::Sender<Answer>)>>,
    /// Turns of those who ask.
    pub(crate) turns: Semaphore,
}

impl Default for Questions {
    fn default() -> Questions {
        Questions { next: AtomicU64::new(1), waiting: Mutex::default(), turns: Semaphore::new(AT_A_TIME) }
    }
}

impl Questions {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, (NodeId, oneshot::Sender<Answer>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node answers; what nobody asked of it is left.
    pub(crate) fn answered(&self, node: NodeId, id: u64, answer: Answer) {
        let mut waiting = self.lock();
        if waiting.get(&id).is_some_and(|(asked, _)| *asked == node)
            && let Some((_, to)) = waiting.remove(&id)
        {
            let _ = to.send(answer);
        }
    }
}

/// Those that wait are forgotten when nobody wants to know any more.
struct Asked<'a>(&'a Questions, Vec<u64>);

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        self.1.iter().for_each(|id| drop(waiting.remove(id)));
    }
}

/// Asks nodes, all at once; of one that does not answer, why.
pub(crate) async fn ask(
    shared: &Shared,
    all: Vec<(NodeId, Question)>,
) -> Result<Vec<(NodeId, Result<Answer, String>)>, NotLeading> {
    let questions = &shared.questions;
    let (mut said, mut answers, mut asked) = (Vec::new(), Vec::new(), Asked(questions, Vec::new()));
    for (node, question) in all {
        let (to, from) = oneshot::channel();
        let id = questions.next.fetch_add(1, Ordering::Relaxed);
        questions.lock().insert(id, (node, to));
        asked.1.push(id);
        let text = serde_json::to_string(&ToNode::Ask { id, question }).unwrap_or_default();
        said.push((node, Arc::from(text)));
        answers.push((node, from));
    }
    shared.say(said)?;
    let until = tokio::time::Instant::now() + PATIENCE;
    let mut heard = Vec::with_capacity(answers.len());
    for (node, from) in answers {
        let answer = match tokio::time::timeout_at(until, from).await {
            Ok(Ok(Answer::No(why))) => Err(why),
            Ok(Ok(answer)) => Ok(answer),
            _ => Err(format!("it has not answered for {} s", PATIENCE.as_secs())),
        };
        heard.push((node, answer));
    }
    Ok(heard)
}
