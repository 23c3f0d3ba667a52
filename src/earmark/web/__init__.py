"""The service of `earmark serve`: a page in the browser, and a REST API; needs `earmark[web]`.

A request passes the guard (`guard`, who may ask; `limits`, how much), then a router
(`detect_routes`, `recording_routes`, `analysis_routes`, `learning_routes`), which calls the service
(`service`). The service keeps recordings in a library (`library`), analyses them once with the
detector (`analysis`, on the threads of `workers`), and answers from what it kept: scores, events,
tiles of the spectrogram (`tiles`), levels of the pooling (`hierarchy`). Corrections (`corrections`)
become tables that `earmark tune` and `earmark train` take, which jobs run (`jobs`).
"""
