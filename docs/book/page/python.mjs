// The Python of a page: a worker, made when the first cell is run, and ended by Stop.

export class Python {
  /**
   * `make` returns a new worker; `start` is what it is sent first; `tell` gets what it says of itself:
   * {progress: text, step, steps} and {ready: true}.
   */
  constructor(make, start, tell) {
    Object.assign(this, { make, start, tell, worker: null, job: null });
  }

  /** Run a cell; `output(kind, text)` gets what it puts out. The promise tells how it ended. */
  run(job, output) {
    if (this.job) return Promise.resolve({ busy: true });
    if (!this.worker) this.#begin();
    return new Promise((resolve) => {
      this.job = { resolve, output };
      this.worker.postMessage({ run: job });
    });
  }

  /** End whatever runs. The next run begins with a new worker: a running Python cannot be interrupted. */
  stop() {
    this.worker?.terminate();
    this.worker = null;
    this.#end({ stopped: true });
  }

  #begin() {
    const worker = (this.worker = this.make());
    worker.onmessage = ({ data }) => {
      if (data.output) this.job?.output(...data.output);
      else if (data.done) this.#end(data.done);
      else this.tell(data);
    };
    worker.onerror = (event) => {
      this.stop();
      this.tell({ failed: event.message ?? "Python did not start" });
    };
    worker.postMessage({ start: this.start() });
  }

  #end(how) {
    const job = this.job;
    this.job = null;
    job?.resolve(how);
  }
}
