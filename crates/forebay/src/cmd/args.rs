//! How options are read that several commands have.

pub(crate) use forebay_types::options::*;

/// The name of a job, or of an application.
pub(crate) fn job(text: &str) -> Result<String, String> {
    let given = Some(text.to_owned()).filter(|t| !t.is_empty()).ok_or("it is empty")?;
    forebay_control::job::check_name(text).map(|()| given)
}
