//! Stream with a limit on idle time.

use crate::connections::Activity;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Stream that times out on a client that reads nothing, or that sends nothing while no request of its own is
/// in progress.
pub(crate) struct IdleTimeout<S> {
    stream: S,
    activity: Activity,
    idle: Duration,
    reading: Pin<Box<Sleep>>,
    writing: Option<Pin<Box<Sleep>>>,
}

impl<S> IdleTimeout<S> {
    pub(crate) fn new(stream: S, activity: Activity, idle: Duration) -> Self {
        IdleTimeout { stream, activity, idle, reading: Box::pin(sleep(idle)), writing: None }
    }

    /// Fails once a client has read nothing for the idle time.
    fn wait_to_write<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let idle = self.idle;
        let patience = self.writing.get_or_insert_with(|| Box::pin(sleep(idle)));
        ready!(patience.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for IdleTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, buf) {
            this.reading.as_mut().reset(Instant::now() + this.idle);
            return Poll::Ready(read);
        }
        while this.reading.as_mut().poll(cx).is_ready() {
            if !this.activity.is_busy() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            this.reading.as_mut().reset(Instant::now() + this.idle);
        }
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for IdleTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(cx, bytes) {
            Poll::Pending => self.wait_to_write(cx),
            done => {
                self.writing = None;
                done
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write_vectored(cx, bytes) {
            Poll::Pending => self.wait_to_write(cx),
            done => {
                self.writing = None;
                done
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    // Under TLS, flush and shutdown write as well.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Pending => self.wait_to_write(cx),
            done => done,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(cx) {
            Poll::Pending => self.wait_to_write(cx),
            done => done,
        }
    }
}
