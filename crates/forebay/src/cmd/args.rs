//! How options are read that several commands have.

pub(crate) use forebay_types::options::*;

/// The name of a job.
pub(crate) fn job(text: &str) -> Result<String, String> {
    let given = Some(text.to_owned()).filter(|t| !t.is_empty()).ok_or("a job has a name")?;
    forebay_control::job::check_name(text).map(|()| given)
}
