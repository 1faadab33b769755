//! Mappings of the configuration as a page or a stream of lines, read by orders ([`crate::configure`]).

use crate::Control;
use crate::configure::{MapCursor, Order, OrderResult};
use crate::lists::STREAMED_AT_ONCE;
use crate::query::{BadRequest, Query};
use crate::response::{Answer, Refusal, json};
use crate::worker_requests::WorkerError;
use bytes::Bytes;
use gatun_api::types as api;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Parts of a stream that wait for the reader.
const STREAM_WAITING: usize = 2;

impl Control {
    /// Lists mappings from a place on, as a page or as a stream.
    pub(crate) async fn maps(self: &Arc<Self>, query: &Query) -> Result<Answer, Refusal> {
        let wrong = || BadRequest::new("cursor: not a cursor of this list", "give `next` of the page before");
        let from = query.get("cursor").map(|text| text.parse::<MapCursor>().map_err(|()| wrong()));
        let from = from.transpose()?;
        let limit = query.limit()?;
        let instance = query.get("instance").map(str::to_owned);
        if !query.is_stream()? {
            return Ok(json(&self.some_maps(instance, from, limit).await?.into_page()));
        }
        // An invalid request is answered with an error, not with a broken stream.
        let first = self.some_maps(instance.clone(), from, STREAMED_AT_ONCE).await?;
        let (out, lines) = mpsc::channel(STREAM_WAITING);
        tokio::spawn(Arc::clone(self).stream_maps(instance, first, out));
        Ok(Answer::Lines(lines))
    }

    async fn stream_maps(
        self: Arc<Self>,
        instance: Option<String>,
        first: Maps,
        out: mpsc::Sender<Result<Bytes, WorkerError>>,
    ) {
        let mut some = first;
        loop {
            if !some.maps.is_empty() && out.send(Ok(some.lines().into())).await.is_err() {
                return;
            }
            let Some(next) = some.next else { return };
            some = match self.some_maps(instance.clone(), Some(next), STREAMED_AT_ONCE).await {
                Ok(some) => some,
                Err(_) => {
                    // The connection breaks off, so the client sees that the list is incomplete.
                    let _ = out.send(Err(WorkerError::Silent)).await;
                    return;
                }
            };
        }
    }

    async fn some_maps(
        &self,
        instance: Option<String>,
        from: Option<MapCursor>,
        limit: usize,
    ) -> Result<Maps, Refusal> {
        match self.order(Order::Maps { instance, from, limit }).await? {
            OrderResult::Maps { maps, next } => Ok(Maps { maps, next }),
            _ => Err(WorkerError::Silent.into()),
        }
    }
}

/// A part of the mappings, and the position of the next one.
struct Maps {
    maps: Vec<api::StaticMap>,
    next: Option<MapCursor>,
}

impl Maps {
    fn into_page(self) -> api::Page<api::StaticMap> {
        api::Page { items: self.maps, next: self.next.map(|next| next.to_string()) }
    }

    fn lines(&self) -> Vec<u8> {
        let mut lines = Vec::with_capacity(self.maps.len() * 128);
        for map in &self.maps {
            // Serialization of these types cannot fail.
            if serde_json::to_writer(&mut lines, map).is_ok() {
                lines.push(b'\n');
            }
        }
        lines
    }
}
