//! Requests as messages of etcd, and the answers.

use super::api::kv_client::KvClient;
use super::api::lease_client::LeaseClient;
use super::api::watch_client::WatchClient;
use super::api::{
    Compare, DeleteRangeRequest, KeyValue, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest,
    PutRequest, RangeRequest, RequestOp, TxnRequest, WatchCreateRequest, WatchRequest, WatchResponse,
    compare, event, request_op, watch_request,
};
use super::connection::{Connections, error_of};
use crate::store::{Answer, Call, Entry, StoreError, Write};
use tonic::transport::Channel;
use tonic::{Code, Status};

/// Greatest number of keys that are read.
const KEYS_MAX: i64 = 10_000;

/// Makes a request and waits for its answer.
pub(super) async fn call(etcd: &Connections, call: Call) -> Result<Answer, StoreError> {
    match call {
        Call::Grant(ttl_ms) => {
            etcd.try_all(true, |channel| grant(etcd, channel, ttl_ms.div_ceil(1_000) as i64)).await
        }
        Call::KeepAlive(lease) => etcd.try_all(true, |channel| keep_alive(etcd, channel, lease)).await,
        Call::Revoke(lease) => etcd.try_all(true, |channel| revoke(etcd, channel, lease)).await,
        Call::Read(prefix) => etcd.try_all(true, |channel| read(etcd, channel, prefix.clone())).await,
        Call::Write(write) => etcd.try_all(false, |channel| transact(etcd, channel, write.clone())).await,
        Call::Watch { .. } => Err(StoreError::Refused("a watch is no call".to_owned())),
    }
}

async fn grant(etcd: &Connections, channel: Channel, ttl_s: i64) -> Result<Answer, Status> {
    let asked = etcd.request(LeaseGrantRequest { ttl: ttl_s, id: 0 });
    let answer = LeaseClient::new(channel).lease_grant(asked).await?.into_inner();
    Ok(Answer::Granted(answer.id, answer.ttl.max(0) as u64 * 1_000))
}

async fn keep_alive(etcd: &Connections, channel: Channel, lease: i64) -> Result<Answer, Status> {
    let asked = tokio_stream::once(LeaseKeepAliveRequest { id: lease });
    let mut answers = LeaseClient::new(channel).lease_keep_alive(etcd.request(asked)).await?.into_inner();
    match answers.message().await? {
        Some(answer) if answer.ttl > 0 => {
            let header = answer.header.unwrap_or_default();
            Ok(Answer::Renewed { store: header.cluster_id, revision: header.revision })
        }
        Some(_) => Ok(Answer::NoLease),
        None => Err(Status::unavailable("etcd has closed the stream of a lease")),
    }
}

async fn revoke(etcd: &Connections, channel: Channel, lease: i64) -> Result<Answer, Status> {
    let asked = etcd.request(LeaseRevokeRequest { id: lease });
    match LeaseClient::new(channel).lease_revoke(asked).await {
        Ok(_) => Ok(Answer::Revoked),
        Err(status) if status.code() == Code::NotFound => Ok(Answer::NoLease),
        Err(status) => Err(status),
    }
}

/// etcd's default is a linearizable read: a member without a majority does not answer.
async fn read(etcd: &Connections, channel: Channel, prefix: String) -> Result<Answer, Status> {
    let asked = RangeRequest { range_end: end_of(&prefix), key: prefix.into_bytes(), limit: KEYS_MAX };
    let answer = KvClient::new(channel).range(etcd.request(asked)).await?.into_inner();
    if answer.more {
        return Err(Status::failed_precondition(format!("more than {KEYS_MAX} keys of this cluster")));
    }
    let header = answer.header.unwrap_or_default();
    let entries = answer.kvs.into_iter().map(entry).collect();
    Ok(Answer::Entries { store: header.cluster_id, revision: header.revision, entries })
}

async fn transact(etcd: &Connections, channel: Channel, write: Write) -> Result<Answer, Status> {
    let compares = write.compares.into_iter().map(|(key, revision)| Compare {
        result: compare::CompareResult::Equal.into(),
        target: compare::CompareTarget::Mod.into(),
        key: key.into_bytes(),
        target_union: Some(compare::TargetUnion::ModRevision(revision)),
    });
    let puts = write.puts.into_iter().map(|put| {
        let (key, value) = (put.key.into_bytes(), put.value.into_bytes());
        request_op::Request::RequestPut(PutRequest { key, value, lease: put.lease })
    });
    let deletes = write
        .deletes
        .into_iter()
        .map(|key| request_op::Request::RequestDeleteRange(DeleteRangeRequest { key: key.into_bytes() }));
    let success = puts.chain(deletes).map(|request| RequestOp { request: Some(request) }).collect();
    let asked = etcd.request(TxnRequest { compare: compares.collect(), success });
    let answer = match KvClient::new(channel).txn(asked).await {
        Ok(answer) => answer.into_inner(),
        Err(status) if is_lease_missing(&status) => return Ok(Answer::NoLease),
        Err(status) => return Err(status),
    };
    Ok(Answer::Written(answer.succeeded, answer.header.unwrap_or_default().revision))
}

/// etcd looks for the leases of all keys before it writes one of them.
fn is_lease_missing(status: &Status) -> bool {
    status.code() == Code::NotFound && status.message().contains("requested lease not found")
}

/// Watches until an error, or until `tell` refuses an answer. Returns the reason.
pub(super) async fn watch(
    etcd: &Connections,
    (prefix, from): (&str, i64),
    mut tell: impl FnMut(Answer) -> Result<(), String>,
) -> String {
    let begun = etcd.try_all(true, |channel| async move {
        let create = WatchCreateRequest {
            key: prefix.as_bytes().to_vec(),
            range_end: end_of(prefix),
            start_revision: from,
            progress_notify: true,
        };
        let request_union = Some(watch_request::RequestUnion::CreateRequest(create));
        // The stream of requests stays open: its end would end the watch.
        let (keep, requests) = tokio::sync::mpsc::channel(1);
        let first = WatchRequest { request_union };
        keep.send(first).await.map_err(|_| Status::internal("the watch was given up"))?;
        let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
        let changes = WatchClient::new(channel).watch(etcd.request(requests)).await?.into_inner();
        Ok((keep, changes))
    });
    let (_keep, mut changes) = match begun.await {
        Ok(begun) => begun,
        Err(error) => return error.to_string(),
    };
    loop {
        match changes.message().await {
            Ok(Some(answer)) if answer.canceled => {
                let compacted = format!("revision {from} is no longer there");
                return if answer.compact_revision > 0 { compacted } else { answer.cancel_reason };
            }
            Ok(Some(answer)) => {
                if let Some(answer) = changes_of(answer)
                    && let Err(why) = tell(answer)
                {
                    return why;
                }
            }
            Ok(None) => return "the stream has ended".to_owned(),
            Err(status) => return error_of(&status).to_string(),
        }
    }
}

/// Returns the changes that a message of a watch has.
///
/// Its header has the present revision of the store. Changes before that may follow, so the header counts
/// only in a notice of progress: such a notice comes when the watch has told everything.
fn changes_of(message: WatchResponse) -> Option<Answer> {
    if message.created {
        return None;
    }
    let entries: Vec<Entry> = message
        .events
        .into_iter()
        .filter_map(|event| {
            let is_deleted = event.r#type == i32::from(event::EventType::Delete);
            let changed = entry(event.kv?);
            Some(if is_deleted { Entry { value: None, ..changed } } else { changed })
        })
        .collect();
    let last = entries.iter().map(|one| one.revision).max();
    let revision = last.unwrap_or_else(|| message.header.unwrap_or_default().revision);
    Some(Answer::Changes(revision, entries))
}

fn entry(of: KeyValue) -> Entry {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Entry { key: text(of.key), value: Some(text(of.value)), revision: of.mod_revision }
}

/// Returns the first key behind those that begin with a text.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // No such key: all keys.
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::super::api::{Event, ResponseHeader};
    use super::*;

    fn message(revisions: &[i64]) -> WatchResponse {
        let kv = |of: &i64| KeyValue { key: b"/t/a".to_vec(), mod_revision: *of, ..KeyValue::default() };
        let events = revisions.iter().map(|of| Event { r#type: 0, kv: Some(kv(of)) }).collect();
        let header = Some(ResponseHeader { revision: 100, ..ResponseHeader::default() });
        WatchResponse { header, events, ..WatchResponse::default() }
    }

    fn revision(of: WatchResponse) -> Option<i64> {
        changes_of(of).map(|answer| match answer {
            Answer::Changes(revision, _) => revision,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_watch_tells_no_revision_whose_changes_it_has_not_told() {
        assert_eq!(revision(WatchResponse { created: true, ..message(&[]) }), None);
        assert_eq!(revision(message(&[7, 9])), Some(9));
        assert_eq!(revision(message(&[])), Some(100), "a notice of progress");
    }
}
