//! Changes whose answer tells what is there afterwards, so that it need not be asked for.

use crate::call::{Body, On, Request};
use crate::client::Client;
use crate::counters::OpIndex;
use crate::error::Error;
use crate::file::File;
use forebay_wire::message::{Answer, Attr, Meta};

/// An older node, or one that found out what became of a request, did not look.
fn looked(answer: Answer<'_>) -> Option<Option<Attr>> {
    match answer {
        Answer::Attr(attr) => Some(Some(attr)),
        Answer::Done => Some(None),
        _ => None,
    }
}

impl Client {
    /// A change, and a look at what is there afterwards in the same trip; `None`: it is done, but nobody looked.
    pub fn meta_and_look(&self, op: Meta<'_>) -> Result<Option<Attr>, Error> {
        let mut body = Vec::with_capacity(64);
        op.encode(&mut body);
        let request = Request { look: true, ..Request::meta(&op, Body::Bytes(&body)) };
        self.answered(OpIndex::meta(&op), On::Names, request, looked)
    }

    /// The same for an open file: `op` is given its handle.
    pub fn meta_on_and_look<'m>(
        &self,
        file: &File,
        op: impl Fn(u64) -> Meta<'m>,
    ) -> Result<Option<Attr>, Error> {
        let shape = op(0);
        let build = |handle: u64, out: &mut Vec<u8>| op(handle).encode(out);
        let request = Request { look: true, ..Request::meta(&shape, Body::ForHandle(&build)) };
        self.answered(OpIndex::meta(&shape), On::File(file), request, looked)
    }
}
