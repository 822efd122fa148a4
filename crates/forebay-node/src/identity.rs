//! As whom jobs are served: what the node was told, and what follows for each job.

use crate::config::NodeConfig;
use crate::sys::acting::{self, Whom};
use forebay_types::{Identity, Secret};
use forebay_who::{Munge, MungeError};
use forebay_wire::WireError;
use forebay_wire::hello::{Hello, JOB};
use std::str::FromStr;
use std::sync::Arc;

/// As whom a node serves those of whom nothing else is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ActAs {
    /// Nobody has said: as the user it runs as, unless that is root.
    #[default]
    Unsaid,
    /// As the user it runs as, also if that is root.
    Itself,
    /// As this user.
    User(Identity),
    /// As the user whom the arbiter names for each job.
    Arbiter,
    /// As the user who proves with MUNGE to be one.
    Munge,
}

impl FromStr for ActAs {
    type Err = String;

    /// A user, or `self`.
    fn from_str(text: &str) -> Result<ActAs, String> {
        if text == "self" {
            return Ok(ActAs::Itself);
        }
        forebay_who::user(text).map(ActAs::User).map_err(|e| e.to_string())
    }
}

impl ActAs {
    /// `arbiter` or `munge`: who says for each job.
    pub fn told_by(text: &str) -> Result<ActAs, String> {
        match text {
            "arbiter" => Ok(ActAs::Arbiter),
            "munge" => Ok(ActAs::Munge),
            _ => Err(format!("`{text}` tells nobody's identity: write arbiter or munge")),
        }
    }
}

/// What was decided when the node started.
pub(crate) struct Identities {
    rule: ActAs,
    allow_root: bool,
    /// The node can act as others.
    switches: bool,
    own: u32,
    munge: Munge,
}

impl Identities {
    /// What the configuration says, if this process can follow it.
    pub(crate) fn new(config: &NodeConfig) -> Result<Identities, String> {
        let own = rustix::process::geteuid().as_raw();
        let switches = acting::may_switch().map_err(|e| format!("its own capabilities are hidden: {e}"))?;
        let mut rule = config.act_as.clone();
        let told = config.jobs.iter().filter(|job| job.user.is_some()).count();
        match &rule {
            ActAs::Unsaid if own == 0 && (told == 0 || told < config.jobs.len()) => {
                return Err(
                    "an I/O node that runs as root must be told as whom it serves: give --as USER, or \
                            --identities arbiter or munge, or every [[job]] its user; --as self serves \
                            everybody as root"
                        .into(),
                );
            }
            // Root, and nobody else, needs no switching.
            ActAs::User(user) if user.uid == own && (own != 0 || user.gid == 0) => rule = ActAs::Itself,
            ActAs::User(user) if !switches => {
                return Err(format!("only an I/O node that runs as root can serve as another user ({user})"));
            }
            ActAs::Arbiter | ActAs::Munge if !switches => {
                return Err("--identities: only an I/O node that runs as root can serve as others".into());
            }
            ActAs::User(user) if user.uid == 0 => {
                return Err("--as: root with another group is no user".into());
            }
            _ => {}
        }
        if told > 0 && !switches && config.jobs.iter().flat_map(|j| &j.user).any(|u| u.uid != own) {
            return Err("[[job]] user: only an I/O node that runs as root can serve as others".into());
        }
        if rule == ActAs::Arbiter && config.arbiters.is_empty() {
            return Err("--identities arbiter: give the arbiter's address, too".into());
        }
        Ok(Identities {
            rule,
            allow_root: config.allow_root,
            switches,
            own,
            munge: Munge::new(config.munge_socket.as_deref()),
        })
    }

    /// Whether several users are served, each as themselves.
    pub(crate) fn tell_apart(&self) -> bool {
        self.switches && matches!(self.rule, ActAs::Unsaid | ActAs::Arbiter | ActAs::Munge)
    }

    /// As whom those are served who only know the node's own secret.
    pub(crate) fn of_the_node(&self) -> Whom {
        match &self.rule {
            ActAs::Unsaid if self.own == 0 => Whom::Nobody,
            ActAs::Unsaid | ActAs::Itself => Whom::Node,
            ActAs::User(user) => Whom::User(Arc::new(user.clone())),
            ActAs::Arbiter | ActAs::Munge => Whom::Nobody,
        }
    }

    /// As whom a job is served that is said to be this user's.
    pub(crate) fn of_job(&self, user: Option<&Identity>) -> Whom {
        let Some(user) = user.filter(|u| u.is_usable()) else { return self.of_the_node() };
        match &self.rule {
            ActAs::Itself | ActAs::User(_) => self.of_the_node(),
            // A user's own node serves that user.
            _ if !self.switches && user.uid == self.own => Whom::Node,
            _ if !self.switches => Whom::Nobody,
            _ if self.allow_root => Whom::User(Arc::new(user.clone())),
            _ => Whom::User(Arc::new(user.clone().squashed())),
        }
    }

    /// As whom a job is served that is in the configuration.
    pub(crate) fn of_configured(&self, user: Option<&Identity>) -> Whom {
        match user {
            Some(user) if self.switches && user.uid != self.own => Whom::User(Arc::new(user.clone())),
            Some(_) => Whom::Node,
            None => self.of_the_node(),
        }
    }

    /// Who begins a job with a credential, and the secret that it carries.
    pub(crate) fn vouched(&self, hello: &Hello<'_>) -> Result<(Secret, Identity), WireError> {
        if self.rule != ActAs::Munge {
            return Err(WireError::Unexpected("this I/O node takes no MUNGE credentials"));
        }
        // On the connection's own thread: whoever else connects does not wait for munged.
        let claim = self.munge.decode(hello.credential).map_err(|e| {
            tracing::warn!("job {}: {e}", hello.job);
            match e {
                MungeError::Replayed | MungeError::Expired => {
                    WireError::Unexpected("the MUNGE credential is too old, or was used before")
                }
                _ => WireError::Credentials,
            }
        })?;
        let secret = claim.payload.strip_prefix(JOB).and_then(|key| <[u8; 32]>::try_from(key).ok());
        let secret = Secret::new(secret.ok_or(WireError::Credentials)?);
        let user = forebay_who::proved(claim.uid, claim.gid).map_err(|_| WireError::Credentials)?;
        Ok((secret, user))
    }
}
