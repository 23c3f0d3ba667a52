// Search runs in a worker, which browsers refuse to pages opened from a disk (file://). There, this class
// takes the place of Worker: the same script runs in a hidden frame. The theme would load such a
// script from another host; its name must contain "iframe-worker" to take that one's place.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.srcdoc = `<script>
        function importScripts(...urls) {
          return urls.reduce((before, url) => before.then(() => new Promise((resolve, reject) => {
            const script = Object.assign(document.createElement("script"), {src: url, onload: resolve, onerror: reject})
            document.head.append(script)
          })), Promise.resolve())
        }
        postMessage = data => frameElement.answer(data)
      </scr` + `ipt><script src="${url}"></scr` + `ipt>`
      this.frame.answer = data => this.dispatchEvent(new MessageEvent("message", {data}))
      this.frame.onload = () => {
        this.loaded = true
        this.waiting.splice(0).forEach(data => this.postMessage(data))
      }
      document.body.append(this.frame)
    }

    postMessage(data) {
      if (!this.loaded) return void this.waiting.push(data)
      const target = this.frame.contentWindow
      target.dispatchEvent(new target.MessageEvent("message", {data}))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
