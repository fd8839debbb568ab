{{- /* One entry for each section of each page. */ -}}
window.searchIndex = [
{{- range site.Pages }}{{ if .File }}
{{- $page := . }}{{ $title := partial "title" . }}
{{- range $i, $part := split .Content "<h2 " }}
{{- $to := $page.RelPermalink }}{{ $name := $title }}
{{- if $i }}
{{- $part = printf "<h2 %s" $part }}
{{- $to = printf "%s#%s" $to (replaceRE `(?s)\A<h2 id="([^"]+)".*\z` "$1" $part) }}
{{- $name = printf "%s: %s" $title (replaceRE `(?s)\A<h2[^>]*>(.*?)</h2>.*\z` "$1" $part | plainify | htmlUnescape) }}
{{- $part = replaceRE `(?s)\A.*?</h2>` "" $part }}
{{- end }}
{{ dict "to" $to "title" $name "text" (trim (replaceRE `\s+` " " (replaceRE `<[^>]+>` " " $part | htmlUnescape)) " ") | jsonify }},
{{- end }}{{ end }}{{ end }}
];
